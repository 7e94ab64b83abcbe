"""The MPIs of a distribution's packages, as a site has them, and what a user types with them."""
