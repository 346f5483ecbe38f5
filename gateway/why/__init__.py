"""Why is it slow: two scrapes of a gateway and its engines, and what lies between them. Pure; asks nobody."""
