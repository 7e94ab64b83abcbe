"""The guide, tuning a cluster, running a service, cost formulas, machines, NCCL, the lab, and why
things are so.

.. include:: guide.md
.. include:: cluster.md
.. include:: service.md
.. include:: cost-formulas.md
.. include:: machines.md
.. include:: nccl.md
.. include:: lab.md
.. include:: decisions/0001-one-table-of-transfers.md
.. include:: decisions/0002-two-environments.md
.. include:: decisions/0003-measurements-are-lines.md
.. include:: decisions/0004-default-unless-proved.md
.. include:: decisions/0005-control-in-the-comparison.md
.. include:: decisions/0006-command-line-on-argparse.md
.. include:: decisions/0007-several-launches.md
.. include:: decisions/0008-rooms.md
.. include:: decisions/0009-libraries-and-runners.md
.. include:: decisions/0010-dispatcher.md
.. include:: decisions/0011-service.md
.. include:: decisions/0012-what-is-inside-a-node.md
.. include:: decisions/0013-rounds-first.md
.. include:: decisions/0014-clusters.md
.. include:: decisions/0015-exchanges.md
.. include:: decisions/0016-rounds-of-a-probe.md
.. include:: decisions/0017-gpus.md
.. include:: decisions/0018-one-belief.md
.. include:: decisions/0019-native-formats.md
"""
