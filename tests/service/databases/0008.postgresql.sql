-- Written by version 0.2.0 at schema 0008 (pg_dump --inserts, without its settings).
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.calibrations (
    id integer NOT NULL,
    probe_id integer,
    cluster character varying NOT NULL,
    library character varying NOT NULL,
    content json NOT NULL,
    digest character varying NOT NULL,
    stored_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.calibrations_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.calibrations_id_seq OWNED BY public.calibrations.id;
CREATE TABLE public.clusters (
    id integer NOT NULL,
    name character varying NOT NULL,
    nodes integer NOT NULL,
    cores integer NOT NULL,
    cpu character varying NOT NULL,
    memory bigint NOT NULL
);
CREATE SEQUENCE public.clusters_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.clusters_id_seq OWNED BY public.clusters.id;
CREATE TABLE public.feedback (
    id integer NOT NULL,
    version integer NOT NULL,
    cluster character varying NOT NULL,
    library character varying NOT NULL,
    ranks integer NOT NULL,
    items json NOT NULL,
    digest character varying NOT NULL,
    stored_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.feedback_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.feedback_id_seq OWNED BY public.feedback.id;
CREATE TABLE public.heldout (
    id integer NOT NULL,
    version integer NOT NULL,
    collective character varying NOT NULL,
    p integer NOT NULL,
    nbytes bigint NOT NULL,
    algorithm character varying NOT NULL,
    default_s double precision NOT NULL,
    tuned_s double precision NOT NULL,
    ratio double precision NOT NULL,
    ci95_low double precision NOT NULL,
    ci95_high double precision NOT NULL
);
CREATE SEQUENCE public.heldout_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.heldout_id_seq OWNED BY public.heldout.id;
CREATE TABLE public.job_log (
    id integer NOT NULL,
    job_id integer NOT NULL,
    attempt integer NOT NULL,
    at timestamp with time zone NOT NULL,
    text character varying NOT NULL,
    data json
);
CREATE SEQUENCE public.job_log_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.job_log_id_seq OWNED BY public.job_log.id;
CREATE TABLE public.jobs (
    id integer NOT NULL,
    kind character varying NOT NULL,
    spec json NOT NULL,
    state character varying NOT NULL,
    progress double precision NOT NULL,
    text character varying NOT NULL,
    attempt integer NOT NULL,
    lost integer NOT NULL,
    runner character varying NOT NULL,
    leased_to timestamp with time zone,
    cancel_requested boolean NOT NULL,
    result json,
    error character varying,
    asked_by character varying NOT NULL,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    ended_at timestamp with time zone
);
CREATE SEQUENCE public.jobs_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.jobs_id_seq OWNED BY public.jobs.id;
CREATE TABLE public.predictions (
    id integer NOT NULL,
    topology_id integer NOT NULL,
    calibration_id integer,
    question json NOT NULL,
    items json NOT NULL,
    digest character varying NOT NULL,
    stored_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.predictions_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.predictions_id_seq OWNED BY public.predictions.id;
CREATE TABLE public.probes (
    id integer NOT NULL,
    cluster_id integer NOT NULL,
    library character varying NOT NULL,
    provenance json NOT NULL,
    digest character varying NOT NULL,
    stored_at timestamp with time zone NOT NULL,
    series_count integer DEFAULT 0 NOT NULL,
    author character varying,
    written_at timestamp with time zone
);
CREATE SEQUENCE public.probes_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.probes_id_seq OWNED BY public.probes.id;
CREATE TABLE public.proofs (
    id integer NOT NULL,
    version integer NOT NULL,
    collective character varying NOT NULL,
    p integer NOT NULL,
    nbytes bigint NOT NULL,
    expected character varying NOT NULL,
    executed character varying NOT NULL,
    confirmed boolean NOT NULL,
    reason character varying NOT NULL
);
CREATE SEQUENCE public.proofs_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.proofs_id_seq OWNED BY public.proofs.id;
CREATE TABLE public.publications (
    id integer NOT NULL,
    version integer NOT NULL,
    cluster character varying NOT NULL,
    library character varying NOT NULL,
    published_at timestamp with time zone NOT NULL,
    published_by character varying NOT NULL,
    restores integer
);
CREATE SEQUENCE public.publications_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.publications_id_seq OWNED BY public.publications.id;
CREATE TABLE public.rules (
    id integer NOT NULL,
    version integer NOT NULL,
    ordinal integer NOT NULL,
    collective character varying NOT NULL,
    nodes integer NOT NULL,
    ppn integer NOT NULL,
    memory character varying NOT NULL,
    operators character varying NOT NULL,
    placement character varying DEFAULT 'consecutive'::character varying NOT NULL,
    start_bytes bigint NOT NULL,
    stop_bytes bigint,
    algorithm character varying NOT NULL,
    params json NOT NULL,
    runner character varying DEFAULT 'library'::character varying NOT NULL,
    evidence json NOT NULL
);
CREATE SEQUENCE public.rules_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.rules_id_seq OWNED BY public.rules.id;
CREATE TABLE public.series (
    id integer NOT NULL,
    probe_id integer NOT NULL,
    ordinal integer NOT NULL,
    kind character varying NOT NULL,
    subject character varying NOT NULL,
    nodes integer NOT NULL,
    ppn integer NOT NULL,
    p integer NOT NULL,
    nbytes bigint NOT NULL,
    algorithm character varying NOT NULL,
    params json NOT NULL,
    memory character varying NOT NULL,
    launch integer NOT NULL,
    placement character varying DEFAULT 'consecutive'::character varying NOT NULL,
    samples json NOT NULL
);
CREATE SEQUENCE public.series_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.series_id_seq OWNED BY public.series.id;
CREATE TABLE public.tokens (
    id integer NOT NULL,
    name character varying NOT NULL,
    scopes json NOT NULL,
    digest character varying NOT NULL,
    created_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    expires_at timestamp with time zone
);
CREATE SEQUENCE public.tokens_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.tokens_id_seq OWNED BY public.tokens.id;
CREATE TABLE public.topologies (
    id integer NOT NULL,
    name character varying NOT NULL,
    format character varying NOT NULL,
    source text NOT NULL,
    record json NOT NULL,
    digest character varying NOT NULL,
    stored_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.topologies_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.topologies_id_seq OWNED BY public.topologies.id;
CREATE TABLE public.tuning_tables (
    version integer NOT NULL,
    cluster_id integer NOT NULL,
    probe_id integer,
    calibration_id integer,
    library character varying NOT NULL,
    provenance json NOT NULL,
    digest character varying DEFAULT ''::character varying NOT NULL,
    copy integer DEFAULT 0 NOT NULL,
    stored_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.tuning_tables_version_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE public.tuning_tables_version_seq OWNED BY public.tuning_tables.version;
ALTER TABLE ONLY public.calibrations ALTER COLUMN id SET DEFAULT nextval('public.calibrations_id_seq'::regclass);
ALTER TABLE ONLY public.clusters ALTER COLUMN id SET DEFAULT nextval('public.clusters_id_seq'::regclass);
ALTER TABLE ONLY public.feedback ALTER COLUMN id SET DEFAULT nextval('public.feedback_id_seq'::regclass);
ALTER TABLE ONLY public.heldout ALTER COLUMN id SET DEFAULT nextval('public.heldout_id_seq'::regclass);
ALTER TABLE ONLY public.job_log ALTER COLUMN id SET DEFAULT nextval('public.job_log_id_seq'::regclass);
ALTER TABLE ONLY public.jobs ALTER COLUMN id SET DEFAULT nextval('public.jobs_id_seq'::regclass);
ALTER TABLE ONLY public.predictions ALTER COLUMN id SET DEFAULT nextval('public.predictions_id_seq'::regclass);
ALTER TABLE ONLY public.probes ALTER COLUMN id SET DEFAULT nextval('public.probes_id_seq'::regclass);
ALTER TABLE ONLY public.proofs ALTER COLUMN id SET DEFAULT nextval('public.proofs_id_seq'::regclass);
ALTER TABLE ONLY public.publications ALTER COLUMN id SET DEFAULT nextval('public.publications_id_seq'::regclass);
ALTER TABLE ONLY public.rules ALTER COLUMN id SET DEFAULT nextval('public.rules_id_seq'::regclass);
ALTER TABLE ONLY public.series ALTER COLUMN id SET DEFAULT nextval('public.series_id_seq'::regclass);
ALTER TABLE ONLY public.tokens ALTER COLUMN id SET DEFAULT nextval('public.tokens_id_seq'::regclass);
ALTER TABLE ONLY public.topologies ALTER COLUMN id SET DEFAULT nextval('public.topologies_id_seq'::regclass);
ALTER TABLE ONLY public.tuning_tables ALTER COLUMN version SET DEFAULT nextval('public.tuning_tables_version_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0008');
INSERT INTO public.calibrations VALUES (1, 1, 'ares', 'openmpi 5.0.11', '{"cluster": "ares", "library": "openmpi 5.0.11", "paths": [{"path_class": "node", "memory": "host", "segments": [{"start_bytes": 0.0, "stop_bytes": "inf", "alpha": {"value": 1e-06, "low": 1e-06, "high": 1e-06}, "beta": {"value": 1e-10, "low": 1e-10, "high": 1e-10}, "staged": false, "latency_per_byte": {"value": 0.0, "low": 0.0, "high": 0.0}}], "eager_limit": "inf", "overhead": {"value": 0.0, "low": 0.0, "high": 0.0}}], "reduction": {"host": {"launch": {"value": 0.0, "low": 0.0, "high": 0.0}, "gamma": {"value": 0.0, "low": 0.0, "high": 0.0}}}, "capacities": {"memory_bus": {"value": 10000000000.0, "low": 9000000000.0, "high": "inf"}}, "port_sharing_threshold": "inf", "separate_network_port": false, "striping_threshold": "inf", "pointer_query_seconds": 0.0, "header_bytes": 0.0, "nominal": false, "provenance": {}, "version": 1}', '64b23ca0ca288211176cb0de1c1ca7849e85907dadbbdb303c0fb09feb1bb032', '2026-11-27 08:18:48.509137+00');
INSERT INTO public.clusters VALUES (1, 'ares', 1, 2, 'any cpu', 1099511627776);
INSERT INTO public.feedback VALUES (1, 1, 'ares', 'openmpi 5.0.11', 4, '[{"collective": "bcast", "nodes": 1, "ppn": 4, "memory": "host", "operators": "any", "algorithm": "chain", "calls": 100, "max_s": 1.0, "nbytes": 8, "median_s": 0.0005}, {"collective": "bcast", "nodes": 1, "ppn": 4, "memory": "host", "operators": "any", "algorithm": "chain", "calls": 100, "max_s": 1.0, "nbytes": 64, "median_s": 0.001}, {"collective": "bcast", "nodes": 1, "ppn": 4, "memory": "host", "operators": "any", "algorithm": "chain", "calls": 100, "max_s": 1.0, "nbytes": 16, "median_s": 0.0006299605249474366}]', 'a642825ee4d0473b931d6bef46b39bb26a1fe8be39c7a40a15118a9e197e43d7', '2026-11-27 08:18:48.620017+00');
INSERT INTO public.heldout VALUES (1, 1, 'bcast', 4, 8, 'chain', 0.002, 0.001, 2, 1.5, 2.5);
INSERT INTO public.job_log VALUES (1, 2, 1, '2026-11-27 08:18:49.583462+00', 'fitting', '{"done": 0.5}');
INSERT INTO public.jobs VALUES (1, 'study', '{"study": 1}', 'queued', 0, '', 0, 0, '', NULL, false, NULL, NULL, '', '2026-11-27 08:18:49.548136+00', NULL, NULL);
INSERT INTO public.jobs VALUES (2, 'tune', '{"measurements": 1, "topology": null, "publish": false, "by": ""}', 'done', 1, '', 1, 0, 'runner', NULL, false, '{"table": 1}', NULL, '', '2026-11-27 08:18:49.551256+00', '2026-11-27 08:18:49.562742+00', '2026-11-27 08:18:49.593711+00');
INSERT INTO public.predictions VALUES (1, 1, NULL, '{"topology": 1, "calibration": null, "collective": "bcast", "sizes": [8], "tuner": "0.1.0"}', '[{"algorithm": "chain", "seconds": [1e-06]}]', 'b7da70d7e0a9cf71a2b181610b7893a6b1299de78ccd3ad92583055a1d2cca16', '2026-11-27 08:18:49.515966+00');
INSERT INTO public.probes VALUES (1, 1, 'openmpi 5.0.11', '{"seed": 7, "launches": ["one"]}', '37344c587ea86f5a91c5440a9537ee69b454de5efc28081988e4ddc89ced79a4', '2026-11-27 08:18:48.430697+00', 3, NULL, NULL);
INSERT INTO public.proofs VALUES (1, 1, 'bcast', 4, 8, 'chain', 'chain', true, '');
INSERT INTO public.publications VALUES (1, 1, 'ares', 'openmpi 5.0.11', '2026-11-27 08:18:48.58011+00', 'ada', NULL);
INSERT INTO public.publications VALUES (2, 2, 'ares', 'openmpi 5.0.11', '2026-11-27 08:18:48.589654+00', 'ada', NULL);
INSERT INTO public.rules VALUES (1, 1, 0, 'bcast', 1, 4, 'host', 'any', 'consecutive', 0, 1, 'default', '{}', 'library', '{"basis": "none", "nbytes": [], "default_s": [], "chosen_s": [], "predicted_s": [], "gain": 1.0, "gain_ci95": [1.0, 1.0], "runner_up": ""}');
INSERT INTO public.rules VALUES (2, 1, 1, 'bcast', 1, 4, 'host', 'any', 'consecutive', 1, 8589934592, 'chain', '{"segment": 4096}', 'library', '{"basis": "measured", "nbytes": [8, 64], "default_s": [0.001, 0.002], "chosen_s": [0.0005, 0.001], "predicted_s": [0.3333333333333333, 0.1], "gain": 2.0, "gain_ci95": [1.5, "inf"], "runner_up": "binomial"}');
INSERT INTO public.rules VALUES (3, 1, 2, 'bcast', 1, 4, 'host', 'any', 'consecutive', 8589934592, NULL, 'default', '{}', 'library', '{"basis": "none", "nbytes": [], "default_s": [], "chosen_s": [], "predicted_s": [], "gain": 1.0, "gain_ci95": [1.0, 1.0], "runner_up": ""}');
INSERT INTO public.rules VALUES (4, 2, 0, 'bcast', 1, 4, 'host', 'any', 'consecutive', 0, 1, 'default', '{}', 'library', '{"basis": "none", "nbytes": [], "default_s": [], "chosen_s": [], "predicted_s": [], "gain": 1.0, "gain_ci95": [1.0, 1.0], "runner_up": ""}');
INSERT INTO public.rules VALUES (5, 2, 1, 'bcast', 1, 4, 'host', 'any', 'consecutive', 1, 8589934592, 'chain', '{"segment": 4096}', 'schedule', '{"basis": "measured", "nbytes": [8, 64], "default_s": [0.001, 0.002], "chosen_s": [0.0005, 0.001], "predicted_s": [0.3333333333333333, 0.1], "gain": 2.0, "gain_ci95": [1.5, "inf"], "runner_up": "binomial"}');
INSERT INTO public.rules VALUES (6, 2, 2, 'bcast', 1, 4, 'host', 'any', 'consecutive', 8589934592, NULL, 'default', '{}', 'library', '{"basis": "none", "nbytes": [], "default_s": [], "chosen_s": [], "predicted_s": [], "gain": 1.0, "gain_ci95": [1.0, 1.0], "runner_up": ""}');
INSERT INTO public.series VALUES (1, 1, 0, 'collective', 'bcast', 1, 4, 4, 8589934592, 'chain', '{"segment": 4096, "chains": 4}', 'host', 0, 'consecutive', '[0.1, 1e-07]');
INSERT INTO public.series VALUES (2, 1, 1, 'collective', 'bcast', 1, 4, 4, 8589934593, 'chain', '{"segment": 4096, "chains": 4}', 'host', 0, 'consecutive', '[0.43333333333333335, 1e-07]');
INSERT INTO public.series VALUES (3, 1, 2, 'collective', 'bcast', 1, 4, 4, 8589934594, 'chain', '{"segment": 4096, "chains": 4}', 'host', 0, 'consecutive', '[0.7666666666666666, 1e-07]');
INSERT INTO public.tokens VALUES (1, 'nightly', '["read", "submit"]', '1e96d6df3cab8357fc377addb2b48f00cd678bfe29e8fcde1f2419ec68a7c324', '2026-11-27 08:18:49.522372+00', NULL, NULL, NULL);
INSERT INTO public.tokens VALUES (2, 'lost', '["read"]', '38b1dfc082a0215bfe0952d329467fccfd1eee5c06a55e06cecd2d00c23c4874', '2026-11-27 08:18:49.53117+00', '2026-11-27 08:18:49.537371+00', NULL, NULL);
INSERT INTO public.tokens VALUES (3, 'brief', '["read"]', '60b90c42191c97e58ee42e60304b7e91b341d64eff6bc56270eb889d73851ebe', '2026-11-27 08:18:49.547009+00', NULL, NULL, '2999-02-01 00:00:00+00');
INSERT INTO public.topologies VALUES (1, 'pair', 'yaml', 'name: pair
nodes: 2
latency: 2us
bandwidth: 1GB/s
', '{"kind": "topology", "version": 2, "name": "pair", "nodes": [{"name": "node0", "cores": 1, "node_topology": null}, {"name": "node1", "cores": 1, "node_topology": null}], "switches": ["switch"], "links": [{"source": "node0", "target": "switch", "capacity": 1000000000.0, "latency": 1e-06, "kind": "network", "count": 1}, {"source": "node1", "target": "switch", "capacity": 1000000000.0, "latency": 1e-06, "kind": "network", "count": 1}, {"source": "switch", "target": "node0", "capacity": 1000000000.0, "latency": 1e-06, "kind": "network", "count": 1}, {"source": "switch", "target": "node1", "capacity": 1000000000.0, "latency": 1e-06, "kind": "network", "count": 1}], "node_topologies": [], "local_latency": null, "local_bandwidth": null, "memory_bandwidth": "inf", "routing": "spread", "capabilities": []}', '1aa1639d1169ef7bd9a30687aa24e47de92830edf9477327ab761e90838bc591', '2026-11-27 08:18:49.508458+00');
INSERT INTO public.tuning_tables VALUES (1, 1, 1, NULL, 'openmpi 5.0.11', '{"noise": 0.02}', 'a8b75236a9d21e67c0b0b03211e231561c16ecf9259119d846c7b5d7b77588ed', 0, '2026-11-27 08:18:48.528591+00');
INSERT INTO public.tuning_tables VALUES (2, 1, NULL, NULL, 'openmpi 5.0.11', '{"noise": 0.02}', '45b37cccbcf07d858b397cfed27597d2af23d8ed8852d5d7d986d269f5352327', 0, '2026-11-27 08:18:48.547235+00');
SELECT pg_catalog.setval('public.calibrations_id_seq', 1, true);
SELECT pg_catalog.setval('public.clusters_id_seq', 1, true);
SELECT pg_catalog.setval('public.feedback_id_seq', 1, true);
SELECT pg_catalog.setval('public.heldout_id_seq', 1, true);
SELECT pg_catalog.setval('public.job_log_id_seq', 1, true);
SELECT pg_catalog.setval('public.jobs_id_seq', 2, true);
SELECT pg_catalog.setval('public.predictions_id_seq', 1, true);
SELECT pg_catalog.setval('public.probes_id_seq', 1, true);
SELECT pg_catalog.setval('public.proofs_id_seq', 1, true);
SELECT pg_catalog.setval('public.publications_id_seq', 2, true);
SELECT pg_catalog.setval('public.rules_id_seq', 6, true);
SELECT pg_catalog.setval('public.series_id_seq', 3, true);
SELECT pg_catalog.setval('public.tokens_id_seq', 3, true);
SELECT pg_catalog.setval('public.topologies_id_seq', 1, true);
SELECT pg_catalog.setval('public.tuning_tables_version_seq', 2, true);
ALTER TABLE ONLY public.alembic_version ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.calibrations ADD CONSTRAINT pk_calibrations PRIMARY KEY (id);
ALTER TABLE ONLY public.clusters ADD CONSTRAINT pk_clusters PRIMARY KEY (id);
ALTER TABLE ONLY public.feedback ADD CONSTRAINT pk_feedback PRIMARY KEY (id);
ALTER TABLE ONLY public.heldout ADD CONSTRAINT pk_heldout PRIMARY KEY (id);
ALTER TABLE ONLY public.job_log ADD CONSTRAINT pk_job_log PRIMARY KEY (id);
ALTER TABLE ONLY public.jobs ADD CONSTRAINT pk_jobs PRIMARY KEY (id);
ALTER TABLE ONLY public.predictions ADD CONSTRAINT pk_predictions PRIMARY KEY (id);
ALTER TABLE ONLY public.probes ADD CONSTRAINT pk_probes PRIMARY KEY (id);
ALTER TABLE ONLY public.proofs ADD CONSTRAINT pk_proofs PRIMARY KEY (id);
ALTER TABLE ONLY public.publications ADD CONSTRAINT pk_publications PRIMARY KEY (id);
ALTER TABLE ONLY public.rules ADD CONSTRAINT pk_rules PRIMARY KEY (id);
ALTER TABLE ONLY public.series ADD CONSTRAINT pk_series PRIMARY KEY (id);
ALTER TABLE ONLY public.tokens ADD CONSTRAINT pk_tokens PRIMARY KEY (id);
ALTER TABLE ONLY public.topologies ADD CONSTRAINT pk_topologies PRIMARY KEY (id);
ALTER TABLE ONLY public.tuning_tables ADD CONSTRAINT pk_tuning_tables PRIMARY KEY (version);
ALTER TABLE ONLY public.calibrations ADD CONSTRAINT uq_calibrations_digest UNIQUE (digest);
ALTER TABLE ONLY public.clusters ADD CONSTRAINT uq_clusters_name UNIQUE (name, nodes, cores, cpu, memory);
ALTER TABLE ONLY public.feedback ADD CONSTRAINT uq_feedback_digest UNIQUE (digest);
ALTER TABLE ONLY public.predictions ADD CONSTRAINT uq_predictions_digest UNIQUE (digest);
ALTER TABLE ONLY public.probes ADD CONSTRAINT uq_probes_digest UNIQUE (digest);
ALTER TABLE ONLY public.rules ADD CONSTRAINT uq_rules_version UNIQUE (version, ordinal);
ALTER TABLE ONLY public.series ADD CONSTRAINT uq_series_probe_id UNIQUE (probe_id, ordinal);
ALTER TABLE ONLY public.tokens ADD CONSTRAINT uq_tokens_digest UNIQUE (digest);
ALTER TABLE ONLY public.tokens ADD CONSTRAINT uq_tokens_name UNIQUE (name);
ALTER TABLE ONLY public.topologies ADD CONSTRAINT uq_topologies_digest UNIQUE (digest);
CREATE INDEX ix_calibrations_probe_id ON public.calibrations USING btree (probe_id);
CREATE INDEX ix_feedback_version ON public.feedback USING btree (version);
CREATE INDEX ix_heldout_version ON public.heldout USING btree (version);
CREATE INDEX ix_job_log_job_id ON public.job_log USING btree (job_id);
CREATE INDEX ix_jobs_state ON public.jobs USING btree (state, id);
CREATE INDEX ix_predictions_calibration_id ON public.predictions USING btree (calibration_id);
CREATE INDEX ix_predictions_topology_id ON public.predictions USING btree (topology_id);
CREATE INDEX ix_probes_cluster_id ON public.probes USING btree (cluster_id);
CREATE INDEX ix_proofs_version ON public.proofs USING btree (version);
CREATE INDEX ix_publications_target ON public.publications USING btree (cluster, library, id);
CREATE INDEX ix_publications_version ON public.publications USING btree (version);
CREATE INDEX ix_series_algorithm ON public.series USING btree (probe_id, algorithm, subject, p, nbytes, ordinal);
CREATE INDEX ix_series_point ON public.series USING btree (probe_id, subject, p, nbytes, algorithm, ordinal);
CREATE INDEX ix_tuning_tables_calibration_id ON public.tuning_tables USING btree (calibration_id);
CREATE INDEX ix_tuning_tables_cluster_id ON public.tuning_tables USING btree (cluster_id);
CREATE INDEX ix_tuning_tables_probe_id ON public.tuning_tables USING btree (probe_id);
CREATE UNIQUE INDEX uq_tuning_tables_digest ON public.tuning_tables USING btree (digest, copy);
ALTER TABLE ONLY public.calibrations ADD CONSTRAINT fk_calibrations_probe_id FOREIGN KEY (probe_id) REFERENCES public.probes(id);
ALTER TABLE ONLY public.feedback ADD CONSTRAINT fk_feedback_version FOREIGN KEY (version) REFERENCES public.tuning_tables(version);
ALTER TABLE ONLY public.heldout ADD CONSTRAINT fk_heldout_version FOREIGN KEY (version) REFERENCES public.tuning_tables(version);
ALTER TABLE ONLY public.job_log ADD CONSTRAINT fk_job_log_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.predictions ADD CONSTRAINT fk_predictions_calibration_id FOREIGN KEY (calibration_id) REFERENCES public.calibrations(id);
ALTER TABLE ONLY public.predictions ADD CONSTRAINT fk_predictions_topology_id FOREIGN KEY (topology_id) REFERENCES public.topologies(id);
ALTER TABLE ONLY public.probes ADD CONSTRAINT fk_probes_cluster_id FOREIGN KEY (cluster_id) REFERENCES public.clusters(id);
ALTER TABLE ONLY public.proofs ADD CONSTRAINT fk_proofs_version FOREIGN KEY (version) REFERENCES public.tuning_tables(version);
ALTER TABLE ONLY public.publications ADD CONSTRAINT fk_publications_restores FOREIGN KEY (restores) REFERENCES public.publications(id);
ALTER TABLE ONLY public.publications ADD CONSTRAINT fk_publications_version FOREIGN KEY (version) REFERENCES public.tuning_tables(version);
ALTER TABLE ONLY public.rules ADD CONSTRAINT fk_rules_version FOREIGN KEY (version) REFERENCES public.tuning_tables(version);
ALTER TABLE ONLY public.series ADD CONSTRAINT fk_series_probe_id FOREIGN KEY (probe_id) REFERENCES public.probes(id);
ALTER TABLE ONLY public.tuning_tables ADD CONSTRAINT fk_tuning_tables_calibration_id FOREIGN KEY (calibration_id) REFERENCES public.calibrations(id);
ALTER TABLE ONLY public.tuning_tables ADD CONSTRAINT fk_tuning_tables_cluster_id FOREIGN KEY (cluster_id) REFERENCES public.clusters(id);
ALTER TABLE ONLY public.tuning_tables ADD CONSTRAINT fk_tuning_tables_probe_id FOREIGN KEY (probe_id) REFERENCES public.probes(id);
