nodes: 3
