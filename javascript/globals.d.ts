// What scripts that are no modules add to the page.

/** Plotly, once it is loaded. */
declare var Plotly: {
  react(node: Element, data: object[], layout: object, config: object): Promise<void>;
  relayout(node: Element, changes: object): Promise<void>;
  purge(node: Element): void;
};
