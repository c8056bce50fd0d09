"""How many replicas a load needs and what they cost: a formula over measured capacities, and a simulation."""
