"""Print a mesh of hexahedra in a skewed cube, in version 2.2 of gmsh's format."""

from itertools import product

SIDE = 16  # cells
POINTS = SIDE + 1
HEXAHEDRON = 5  # gmsh's number of the kind of cell


def point(x: int, y: int, z: int) -> int:
    return 1 + x + POINTS * (y + POINTS * z)


def corners(x: int, y: int, z: int) -> list[int]:
    """Return the points of a cell in gmsh's order: around its bottom, then around its top."""
    around = ((0, 0), (1, 0), (1, 1), (0, 1))
    return [point(x + dx, y + dy, z + dz) for dz in (0, 1) for dx, dy in around]


print("$MeshFormat\n2.2 0 8\n$EndMeshFormat")
print(f"$Nodes\n{POINTS**3}")
for z, y, x in product(range(POINTS), repeat=3):
    print(point(x, y, z), (x / SIDE) ** 1.5, y / SIDE, (z + 0.2 * x) / SIDE)
print(f"$EndNodes\n$Elements\n{SIDE**3}")
for number, (z, y, x) in enumerate(product(range(SIDE), repeat=3), 1):
    print(number, HEXAHEDRON, "2 1 1", *corners(x, y, z))
print("$EndElements")
