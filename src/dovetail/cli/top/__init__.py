"""`dovetail top`: a docket, live in a terminal. A pure model, a pure screen, a keyboard, and what ties them."""
