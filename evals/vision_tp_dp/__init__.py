"""The suite of `vision-tp-dp`: its cases, and the cost model behind `skillgen advise`."""
