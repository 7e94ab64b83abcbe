-- Written by version 0.2.0 at schema 0008 (sqlite3's iterdump).
BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num varchar(32) not null, constraint alembic_version_pkc primary key (version_num));
INSERT INTO "alembic_version" VALUES('0008');
CREATE TABLE calibrations (
	id INTEGER NOT NULL, 
	probe_id INTEGER, 
	cluster VARCHAR NOT NULL, 
	library VARCHAR NOT NULL, 
	content JSON NOT NULL, 
	digest VARCHAR NOT NULL, 
	stored_at DATETIME NOT NULL, 
	CONSTRAINT pk_calibrations PRIMARY KEY (id), 
	CONSTRAINT fk_calibrations_probe_id FOREIGN KEY(probe_id) REFERENCES probes (id), 
	CONSTRAINT uq_calibrations_digest UNIQUE (digest)
);
INSERT INTO "calibrations" VALUES(1,1,'ares','openmpi 5.0.11','{"cluster": "ares", "library": "openmpi 5.0.11", "paths": [{"path_class": "node", "memory": "host", "segments": [{"start_bytes": 0.0, "stop_bytes": "inf", "alpha": {"value": 1e-06, "low": 1e-06, "high": 1e-06}, "beta": {"value": 1e-10, "low": 1e-10, "high": 1e-10}, "staged": false, "latency_per_byte": {"value": 0.0, "low": 0.0, "high": 0.0}}], "eager_limit": "inf", "overhead": {"value": 0.0, "low": 0.0, "high": 0.0}}], "reduction": {"host": {"launch": {"value": 0.0, "low": 0.0, "high": 0.0}, "gamma": {"value": 0.0, "low": 0.0, "high": 0.0}}}, "capacities": {"memory_bus": {"value": 10000000000.0, "low": 9000000000.0, "high": "inf"}}, "port_sharing_threshold": "inf", "separate_network_port": false, "striping_threshold": "inf", "pointer_query_seconds": 0.0, "header_bytes": 0.0, "nominal": false, "provenance": {}, "version": 1}','64b23ca0ca288211176cb0de1c1ca7849e85907dadbbdb303c0fb09feb1bb032','2026-11-27 08:01:44.563393');
CREATE TABLE clusters (
	id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	nodes INTEGER NOT NULL, 
	cores INTEGER NOT NULL, 
	cpu VARCHAR NOT NULL, 
	memory BIGINT NOT NULL, 
	CONSTRAINT pk_clusters PRIMARY KEY (id), 
	CONSTRAINT uq_clusters_name UNIQUE (name, nodes, cores, cpu, memory)
);
INSERT INTO "clusters" VALUES(1,'ares',1,2,'any cpu',1099511627776);
CREATE TABLE feedback (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	cluster VARCHAR NOT NULL, 
	library VARCHAR NOT NULL, 
	ranks INTEGER NOT NULL, 
	items JSON NOT NULL, 
	digest VARCHAR NOT NULL, 
	stored_at DATETIME NOT NULL, 
	CONSTRAINT pk_feedback PRIMARY KEY (id), 
	CONSTRAINT fk_feedback_version FOREIGN KEY(version) REFERENCES tuning_tables (version), 
	CONSTRAINT uq_feedback_digest UNIQUE (digest)
);
INSERT INTO "feedback" VALUES(1,1,'ares','openmpi 5.0.11',4,'[{"collective": "bcast", "nodes": 1, "ppn": 4, "memory": "host", "operators": "any", "algorithm": "chain", "calls": 100, "max_s": 1.0, "nbytes": 8, "median_s": 0.0005}, {"collective": "bcast", "nodes": 1, "ppn": 4, "memory": "host", "operators": "any", "algorithm": "chain", "calls": 100, "max_s": 1.0, "nbytes": 64, "median_s": 0.001}, {"collective": "bcast", "nodes": 1, "ppn": 4, "memory": "host", "operators": "any", "algorithm": "chain", "calls": 100, "max_s": 1.0, "nbytes": 16, "median_s": 0.0006299605249474366}]','a642825ee4d0473b931d6bef46b39bb26a1fe8be39c7a40a15118a9e197e43d7','2026-11-27 08:01:44.597554');
CREATE TABLE heldout (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	collective VARCHAR NOT NULL, 
	p INTEGER NOT NULL, 
	nbytes BIGINT NOT NULL, 
	algorithm VARCHAR NOT NULL, 
	default_s DOUBLE NOT NULL, 
	tuned_s DOUBLE NOT NULL, 
	ratio DOUBLE NOT NULL, 
	ci95_low DOUBLE NOT NULL, 
	ci95_high DOUBLE NOT NULL, 
	CONSTRAINT pk_heldout PRIMARY KEY (id), 
	CONSTRAINT fk_heldout_version FOREIGN KEY(version) REFERENCES tuning_tables (version)
);
INSERT INTO "heldout" VALUES(1,1,'bcast',4,8,'chain',0.002,0.001,2.0,1.5,2.5);
CREATE TABLE job_log (
	id INTEGER NOT NULL, 
	job_id INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	text VARCHAR NOT NULL, 
	data JSON, 
	CONSTRAINT pk_job_log PRIMARY KEY (id), 
	CONSTRAINT fk_job_log_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "job_log" VALUES(1,2,1,'2026-11-27 08:01:45.002501','fitting','{"done": 0.5}');
CREATE TABLE jobs (
	id INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	spec JSON NOT NULL, 
	state VARCHAR NOT NULL, 
	progress DOUBLE NOT NULL, 
	text VARCHAR NOT NULL, 
	attempt INTEGER NOT NULL, 
	lost INTEGER NOT NULL, 
	runner VARCHAR NOT NULL, 
	leased_to DATETIME, 
	cancel_requested BOOLEAN NOT NULL, 
	result JSON, 
	error VARCHAR, 
	asked_by VARCHAR NOT NULL, 
	created_at DATETIME NOT NULL, 
	started_at DATETIME, 
	ended_at DATETIME, 
	CONSTRAINT pk_jobs PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES(1,'study','{"study": 1}','queued',0.0,'',0,0,'',NULL,0,NULL,NULL,'','2026-11-27 08:01:44.983474',NULL,NULL);
INSERT INTO "jobs" VALUES(2,'tune','{"measurements": 1, "topology": null, "publish": false, "by": ""}','done',1.0,'',1,0,'runner',NULL,0,'{"table": 1}',NULL,'','2026-11-27 08:01:44.984789','2026-11-27 08:01:44.993249','2026-11-27 08:01:45.004239');
CREATE TABLE predictions (
	id INTEGER NOT NULL, 
	topology_id INTEGER NOT NULL, 
	calibration_id INTEGER, 
	question JSON NOT NULL, 
	items JSON NOT NULL, 
	digest VARCHAR NOT NULL, 
	stored_at DATETIME NOT NULL, 
	CONSTRAINT pk_predictions PRIMARY KEY (id), 
	CONSTRAINT fk_predictions_topology_id FOREIGN KEY(topology_id) REFERENCES topologies (id), 
	CONSTRAINT fk_predictions_calibration_id FOREIGN KEY(calibration_id) REFERENCES calibrations (id), 
	CONSTRAINT uq_predictions_digest UNIQUE (digest)
);
INSERT INTO "predictions" VALUES(1,1,NULL,'{"topology": 1, "calibration": null, "collective": "bcast", "sizes": [8], "tuner": "0.1.0"}','[{"algorithm": "chain", "seconds": [1e-06]}]','b7da70d7e0a9cf71a2b181610b7893a6b1299de78ccd3ad92583055a1d2cca16','2026-11-27 08:01:44.913626');
CREATE TABLE probes (
	id INTEGER NOT NULL, 
	cluster_id INTEGER NOT NULL, 
	library VARCHAR NOT NULL, 
	provenance JSON NOT NULL, 
	digest VARCHAR NOT NULL, 
	stored_at DATETIME NOT NULL, 
	series_count INTEGER DEFAULT '0' NOT NULL, 
	author VARCHAR, 
	written_at DATETIME, 
	CONSTRAINT pk_probes PRIMARY KEY (id), 
	CONSTRAINT fk_probes_cluster_id FOREIGN KEY(cluster_id) REFERENCES clusters (id), 
	CONSTRAINT uq_probes_digest UNIQUE (digest)
);
INSERT INTO "probes" VALUES(1,1,'openmpi 5.0.11','{"seed": 7, "launches": ["one"]}','37344c587ea86f5a91c5440a9537ee69b454de5efc28081988e4ddc89ced79a4','2026-11-27 08:01:44.552808',3,NULL,NULL);
CREATE TABLE proofs (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	collective VARCHAR NOT NULL, 
	p INTEGER NOT NULL, 
	nbytes BIGINT NOT NULL, 
	expected VARCHAR NOT NULL, 
	executed VARCHAR NOT NULL, 
	confirmed BOOLEAN NOT NULL, 
	reason VARCHAR NOT NULL, 
	CONSTRAINT pk_proofs PRIMARY KEY (id), 
	CONSTRAINT fk_proofs_version FOREIGN KEY(version) REFERENCES tuning_tables (version)
);
INSERT INTO "proofs" VALUES(1,1,'bcast',4,8,'chain','chain',1,'');
CREATE TABLE publications (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	cluster VARCHAR NOT NULL, 
	library VARCHAR NOT NULL, 
	published_at DATETIME NOT NULL, 
	published_by VARCHAR NOT NULL, 
	restores INTEGER, 
	CONSTRAINT pk_publications PRIMARY KEY (id), 
	CONSTRAINT fk_publications_version FOREIGN KEY(version) REFERENCES tuning_tables (version), 
	CONSTRAINT fk_publications_restores FOREIGN KEY(restores) REFERENCES publications (id)
);
INSERT INTO "publications" VALUES(1,1,'ares','openmpi 5.0.11','2026-11-27 08:01:44.585166','ada',NULL);
INSERT INTO "publications" VALUES(2,2,'ares','openmpi 5.0.11','2026-11-27 08:01:44.587154','ada',NULL);
CREATE TABLE rules (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	ordinal INTEGER NOT NULL, 
	collective VARCHAR NOT NULL, 
	nodes INTEGER NOT NULL, 
	ppn INTEGER NOT NULL, 
	memory VARCHAR NOT NULL, 
	operators VARCHAR NOT NULL, 
	placement VARCHAR DEFAULT 'consecutive' NOT NULL, 
	start_bytes BIGINT NOT NULL, 
	stop_bytes BIGINT, 
	algorithm VARCHAR NOT NULL, 
	params JSON NOT NULL, 
	runner VARCHAR DEFAULT 'library' NOT NULL, 
	evidence JSON NOT NULL, 
	CONSTRAINT pk_rules PRIMARY KEY (id), 
	CONSTRAINT uq_rules_version UNIQUE (version, ordinal), 
	CONSTRAINT fk_rules_version FOREIGN KEY(version) REFERENCES tuning_tables (version)
);
INSERT INTO "rules" VALUES(1,1,0,'bcast',1,4,'host','any','consecutive',0,1,'default','{}','library','{"basis": "none", "nbytes": [], "default_s": [], "chosen_s": [], "predicted_s": [], "gain": 1.0, "gain_ci95": [1.0, 1.0], "runner_up": ""}');
INSERT INTO "rules" VALUES(2,1,1,'bcast',1,4,'host','any','consecutive',1,8589934592,'chain','{"segment": 4096}','library','{"basis": "measured", "nbytes": [8, 64], "default_s": [0.001, 0.002], "chosen_s": [0.0005, 0.001], "predicted_s": [0.3333333333333333, 0.1], "gain": 2.0, "gain_ci95": [1.5, "inf"], "runner_up": "binomial"}');
INSERT INTO "rules" VALUES(3,1,2,'bcast',1,4,'host','any','consecutive',8589934592,NULL,'default','{}','library','{"basis": "none", "nbytes": [], "default_s": [], "chosen_s": [], "predicted_s": [], "gain": 1.0, "gain_ci95": [1.0, 1.0], "runner_up": ""}');
INSERT INTO "rules" VALUES(4,2,0,'bcast',1,4,'host','any','consecutive',0,1,'default','{}','library','{"basis": "none", "nbytes": [], "default_s": [], "chosen_s": [], "predicted_s": [], "gain": 1.0, "gain_ci95": [1.0, 1.0], "runner_up": ""}');
INSERT INTO "rules" VALUES(5,2,1,'bcast',1,4,'host','any','consecutive',1,8589934592,'chain','{"segment": 4096}','schedule','{"basis": "measured", "nbytes": [8, 64], "default_s": [0.001, 0.002], "chosen_s": [0.0005, 0.001], "predicted_s": [0.3333333333333333, 0.1], "gain": 2.0, "gain_ci95": [1.5, "inf"], "runner_up": "binomial"}');
INSERT INTO "rules" VALUES(6,2,2,'bcast',1,4,'host','any','consecutive',8589934592,NULL,'default','{}','library','{"basis": "none", "nbytes": [], "default_s": [], "chosen_s": [], "predicted_s": [], "gain": 1.0, "gain_ci95": [1.0, 1.0], "runner_up": ""}');
CREATE TABLE series (
	id INTEGER NOT NULL, 
	probe_id INTEGER NOT NULL, 
	ordinal INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	nodes INTEGER NOT NULL, 
	ppn INTEGER NOT NULL, 
	p INTEGER NOT NULL, 
	nbytes BIGINT NOT NULL, 
	algorithm VARCHAR NOT NULL, 
	params JSON NOT NULL, 
	memory VARCHAR NOT NULL, 
	launch INTEGER NOT NULL, 
	placement VARCHAR DEFAULT 'consecutive' NOT NULL, 
	samples JSON NOT NULL, 
	CONSTRAINT pk_series PRIMARY KEY (id), 
	CONSTRAINT uq_series_probe_id UNIQUE (probe_id, ordinal), 
	CONSTRAINT fk_series_probe_id FOREIGN KEY(probe_id) REFERENCES probes (id)
);
INSERT INTO "series" VALUES(1,1,0,'collective','bcast',1,4,4,8589934592,'chain','{"segment": 4096, "chains": 4}','host',0,'consecutive','[0.1, 1e-07]');
INSERT INTO "series" VALUES(2,1,1,'collective','bcast',1,4,4,8589934593,'chain','{"segment": 4096, "chains": 4}','host',0,'consecutive','[0.43333333333333335, 1e-07]');
INSERT INTO "series" VALUES(3,1,2,'collective','bcast',1,4,4,8589934594,'chain','{"segment": 4096, "chains": 4}','host',0,'consecutive','[0.7666666666666666, 1e-07]');
CREATE TABLE tokens (
	id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	scopes JSON NOT NULL, 
	digest VARCHAR NOT NULL, 
	created_at DATETIME NOT NULL, 
	revoked_at DATETIME, 
	last_used_at DATETIME, 
	expires_at DATETIME, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_name UNIQUE (name), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES(1,'nightly','["read", "submit"]','1e96d6df3cab8357fc377addb2b48f00cd678bfe29e8fcde1f2419ec68a7c324','2026-11-27 08:01:44.917901',NULL,NULL,NULL);
INSERT INTO "tokens" VALUES(2,'lost','["read"]','38b1dfc082a0215bfe0952d329467fccfd1eee5c06a55e06cecd2d00c23c4874','2026-11-27 08:01:44.918740','2026-11-27 08:01:44.919803',NULL,NULL);
INSERT INTO "tokens" VALUES(3,'brief','["read"]','60b90c42191c97e58ee42e60304b7e91b341d64eff6bc56270eb889d73851ebe','2026-11-27 08:01:44.983278',NULL,NULL,'2999-02-01 00:00:00.000000');
CREATE TABLE topologies (
	id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	format VARCHAR NOT NULL, 
	source TEXT NOT NULL, 
	record JSON NOT NULL, 
	digest VARCHAR NOT NULL, 
	stored_at DATETIME NOT NULL, 
	CONSTRAINT pk_topologies PRIMARY KEY (id), 
	CONSTRAINT uq_topologies_digest UNIQUE (digest)
);
INSERT INTO "topologies" VALUES(1,'pair','yaml','name: pair
nodes: 2
latency: 2us
bandwidth: 1GB/s
','{"kind": "topology", "version": 2, "name": "pair", "nodes": [{"name": "node0", "cores": 1, "node_topology": null}, {"name": "node1", "cores": 1, "node_topology": null}], "switches": ["switch"], "links": [{"source": "node0", "target": "switch", "capacity": 1000000000.0, "latency": 1e-06, "kind": "network", "count": 1}, {"source": "node1", "target": "switch", "capacity": 1000000000.0, "latency": 1e-06, "kind": "network", "count": 1}, {"source": "switch", "target": "node0", "capacity": 1000000000.0, "latency": 1e-06, "kind": "network", "count": 1}, {"source": "switch", "target": "node1", "capacity": 1000000000.0, "latency": 1e-06, "kind": "network", "count": 1}], "node_topologies": [], "local_latency": null, "local_bandwidth": null, "memory_bandwidth": "inf", "routing": "spread", "capabilities": []}','1aa1639d1169ef7bd9a30687aa24e47de92830edf9477327ab761e90838bc591','2026-11-27 08:01:44.912045');
CREATE TABLE tuning_tables (
	version INTEGER NOT NULL, 
	cluster_id INTEGER NOT NULL, 
	probe_id INTEGER, 
	calibration_id INTEGER, 
	library VARCHAR NOT NULL, 
	provenance JSON NOT NULL, 
	digest VARCHAR DEFAULT '' NOT NULL, 
	copy INTEGER DEFAULT '0' NOT NULL, 
	stored_at DATETIME NOT NULL, 
	CONSTRAINT pk_tuning_tables PRIMARY KEY (version), 
	CONSTRAINT fk_tuning_tables_cluster_id FOREIGN KEY(cluster_id) REFERENCES clusters (id), 
	CONSTRAINT fk_tuning_tables_probe_id FOREIGN KEY(probe_id) REFERENCES probes (id), 
	CONSTRAINT fk_tuning_tables_calibration_id FOREIGN KEY(calibration_id) REFERENCES calibrations (id)
);
INSERT INTO "tuning_tables" VALUES(1,1,1,NULL,'openmpi 5.0.11','{"noise": 0.02}','a8b75236a9d21e67c0b0b03211e231561c16ecf9259119d846c7b5d7b77588ed',0,'2026-11-27 08:01:44.568779');
INSERT INTO "tuning_tables" VALUES(2,1,NULL,NULL,'openmpi 5.0.11','{"noise": 0.02}','45b37cccbcf07d858b397cfed27597d2af23d8ed8852d5d7d986d269f5352327',0,'2026-11-27 08:01:44.571434');
CREATE INDEX ix_jobs_state ON jobs (state, id);
CREATE INDEX ix_job_log_job_id ON job_log (job_id);
CREATE INDEX ix_probes_cluster_id ON probes (cluster_id);
CREATE INDEX ix_series_point ON series (probe_id, subject, p, nbytes, algorithm, ordinal);
CREATE INDEX ix_series_algorithm ON series (probe_id, algorithm, subject, p, nbytes, ordinal);
CREATE INDEX ix_calibrations_probe_id ON calibrations (probe_id);
CREATE INDEX ix_predictions_calibration_id ON predictions (calibration_id);
CREATE INDEX ix_predictions_topology_id ON predictions (topology_id);
CREATE INDEX ix_tuning_tables_probe_id ON tuning_tables (probe_id);
CREATE INDEX ix_tuning_tables_calibration_id ON tuning_tables (calibration_id);
CREATE INDEX ix_tuning_tables_cluster_id ON tuning_tables (cluster_id);
CREATE UNIQUE INDEX uq_tuning_tables_digest ON tuning_tables (digest, copy);
CREATE INDEX ix_proofs_version ON proofs (version);
CREATE INDEX ix_heldout_version ON heldout (version);
CREATE INDEX ix_publications_target ON publications (cluster, library, id);
CREATE INDEX ix_publications_version ON publications (version);
CREATE INDEX ix_feedback_version ON feedback (version);
COMMIT;
