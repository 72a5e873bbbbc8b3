"""The notebooks of docs/notebooks, each a script in which `# %%` begins a cell: `python -m studies.notebooks`."""
