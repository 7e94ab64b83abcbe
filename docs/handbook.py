"""The guide, tuning a cluster, running a service, cost formulas, machines, NCCL, the lab, and why
things are so.

.. include:: guide.md
.. include:: cluster.md
.. include:: service.md
.. include:: cost-formulas.md
.. include:: machines.md
.. include:: nccl.md
.. include:: lab.md
.. include:: adr/0001-one-table-of-transfers.md
.. include:: adr/0002-two-environments.md
.. include:: adr/0003-measurements-are-lines.md
.. include:: adr/0004-default-unless-proved.md
.. include:: adr/0005-control-in-the-comparison.md
.. include:: adr/0006-command-line-on-argparse.md
.. include:: adr/0007-several-launches.md
.. include:: adr/0008-rooms.md
.. include:: adr/0009-libraries-and-runners.md
.. include:: adr/0010-dispatcher.md
.. include:: adr/0011-service.md
.. include:: adr/0012-what-is-inside-a-node.md
.. include:: adr/0013-rounds-first.md
.. include:: adr/0014-clusters.md
.. include:: adr/0015-exchanges.md
.. include:: adr/0016-rounds-of-a-probe.md
.. include:: adr/0017-gpus.md
.. include:: adr/0018-one-belief.md
.. include:: adr/0019-native-formats.md
"""
