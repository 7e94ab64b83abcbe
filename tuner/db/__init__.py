"""The database of measurements, calibrations, tables and feedback, and of jobs and tokens.

SQLite and PostgreSQL are supported alike.
"""

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from tuner.db.calibrations import (
    StoredCalibration,
    list_calibrations,
    load_calibration,
    store_calibration,
)
from tuner.db.clusters import StoredCluster, list_clusters, load_cluster, store_cluster
from tuner.db.db_errors import (
    ConflictError,
    LostLeaseError,
    NewerVersionError,
    NotFoundError,
    QueueFullError,
    UnavailableError,
)
from tuner.db.deduplication import InsertResult
from tuner.db.engine import open_database
from tuner.db.feedback import (
    Staleness,
    StoredFeedback,
    assess_staleness,
    list_feedback,
    store_feedback,
)
from tuner.db.ingestion import ingest
from tuner.db.jobs import (
    STATES,
    Job,
    JobLogEntry,
    JobState,
    JobSummary,
    cancel_job,
    count_jobs,
    describe_job,
    enqueue_job,
    list_job_log,
    list_jobs,
    load_job,
    load_job_json,
    load_result,
)
from tuner.db.measurements import (
    StoredMeasurements,
    describe_measurements,
    list_measurements,
    list_series,
    load_measurements,
    load_pair_sweep,
    measurement_lines,
    store_measurements,
)
from tuner.db.migrate import check_ready
from tuner.db.pagination import Page
from tuner.db.publications import (
    Publication,
    current_publication,
    current_publications,
    list_publications,
    newest_publication_id,
    publish,
    roll_back,
)
from tuner.db.queue import (
    JOB_LEASE_S,
    Claim,
    append_job_log,
    claim_job,
    fail_job,
    finish_job,
    heartbeat,
    mark_job_cancelled,
    requeue_job,
    retry_job,
)
from tuner.db.retention import KEEP_ALL, Prunable, Retention, find_prunable, prune
from tuner.db.sqlite_file import exposed_modes
from tuner.db.tables import StoredTable, describe_table, list_tables, load_table, store_table
from tuner.db.tokens import (
    SCOPES,
    Token,
    check_token,
    create_token,
    has_tokens,
    list_tokens,
    revoke_token,
)
from tuner.db.topologies import (
    StoredTopology,
    TopologyFile,
    TopologySummary,
    list_topologies,
    load_topology,
    store_topology,
)
from tuner.db.transactions import read_session, transaction
from tuner.db.validations import load_heldout, load_validations, store_heldout, store_validations

__all__ = [
    "JOB_LEASE_S",
    "KEEP_ALL",
    "SCOPES",
    "STATES",
    "Claim",
    "ConflictError",
    "Engine",
    "InsertResult",
    "Job",
    "JobLogEntry",
    "JobState",
    "JobSummary",
    "LostLeaseError",
    "NewerVersionError",
    "NotFoundError",
    "Page",
    "Prunable",
    "Publication",
    "QueueFullError",
    "Retention",
    "Session",
    "Staleness",
    "StoredCalibration",
    "StoredCluster",
    "StoredFeedback",
    "StoredMeasurements",
    "StoredTable",
    "StoredTopology",
    "Token",
    "TopologyFile",
    "TopologySummary",
    "UnavailableError",
    "append_job_log",
    "assess_staleness",
    "cancel_job",
    "check_ready",
    "check_token",
    "claim_job",
    "count_jobs",
    "create_token",
    "current_publication",
    "current_publications",
    "describe_job",
    "describe_measurements",
    "describe_table",
    "enqueue_job",
    "exposed_modes",
    "fail_job",
    "find_prunable",
    "finish_job",
    "has_tokens",
    "heartbeat",
    "ingest",
    "list_calibrations",
    "list_clusters",
    "list_feedback",
    "list_job_log",
    "list_jobs",
    "list_measurements",
    "list_publications",
    "list_series",
    "list_tables",
    "list_tokens",
    "list_topologies",
    "load_calibration",
    "load_cluster",
    "load_heldout",
    "load_job",
    "load_job_json",
    "load_measurements",
    "load_pair_sweep",
    "load_result",
    "load_table",
    "load_topology",
    "load_validations",
    "mark_job_cancelled",
    "measurement_lines",
    "newest_publication_id",
    "open_database",
    "prune",
    "publish",
    "read_session",
    "requeue_job",
    "retry_job",
    "revoke_token",
    "roll_back",
    "store_calibration",
    "store_cluster",
    "store_feedback",
    "store_heldout",
    "store_measurements",
    "store_table",
    "store_topology",
    "store_validations",
    "transaction",
]
