//! `/internal/ingest/backup`: what scripts report, and what they are answered.

use futures_util::future::join_all;
use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};
use serde_json::{Value, json};

use crate::support::backups::{REPORTS, at, backup, counts, job, open, targets};
use crate::support::devices::IngestKey;
use crate::support::{Answer, Server, Setup, Tenancy, over_http};
use crate::tickets::{organization, with, without};

const RESTIC: &str = r#"{"message_type":"summary","files_new":2,"total_files_processed":3,"total_bytes_processed":4096,"data_added":10,"snapshot_id":"5f0c7c21aa10bd6c2ba3be9bb7a9b0a3b6a1d3a4b7c6f6d37a3f2f1e8f2d1c0b"}"#;
const BORG: &str = r#"{"archive":{"id":"5f0c7c21aa10bd6c2ba3be9bb7a9b0a3b6a1d3a4b7c6f6d37a3f2f1e8f2d1c0b","start":"2026-01-15T09:50:00.000000","stats":{"original_size":4096,"deduplicated_size":10,"nfiles":3}},"encryption":{"mode":"repokey"},"repository":{"location":"/srv/borg"}}"#;
const MISSING: &str = r#"{"message_type":"error","error":{"message":"lstat /srv/gone: no such file or directory"},"during":"archival","item":"/srv/gone"}"#;

struct Sender {
    server: Server,
    acme: Tenancy,
    key: IngestKey,
    device: String,
}

impl Sender {
    async fn open(setup: Setup) -> Sender {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let device = server.machine(&acme, "web01", None).await;
        Sender { server, acme, key, device }
    }

    async fn post(&self, report: &Value) -> Answer {
        self.server.post_report(&self.key, report).await
    }

    /// A good run that ends now, with something else said of it.
    fn report(&self, more: &Value) -> Value {
        with(&backup(&self.device, "success", self.server.now()), more)
    }

    /// What a tool has printed.
    fn printed(&self, tool: &str, kind: &str, exit_code: i64, stdout: &str, stderr: &str) -> Value {
        let name = format!("{tool} {kind} {exit_code} {stderr} {stdout}");
        let id = format!("{:.150}", name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let report = without(&job(&self.device, kind, "success", self.server.now()), &["status"]);
        with(
            &report,
            &json!({"external_id": id, "tool": tool, "exit_code": exit_code, "stdout": stdout, "stderr": stderr}),
        )
    }

    /// Success, warning, failed and missed of the last 24 hours.
    async fn counted(&self) -> [i64; 4] {
        counts(&self.server.aggregate(&self.acme, "").await["totals"]["jobs_24h"])
    }
}

over_http! {
    async fn a_report_is_taken_once_and_answered_the_same_again(setup: Setup) {
        let own = Sender::open(setup).await;
        let report = own.report(&json!({"status": "failed", "message": "disk full"}));
        let first = own.post(&report).await.ok(201);
        assert!(first["id"].as_str().unwrap().starts_with("bjr_"), "{first}");
        assert_eq!(first, json!({"id": first["id"], "status": "failed", "reasons": [{"code": "declared", "detail": "disk full"}]}));
        own.server.advance(2 * DAY_MS);
        assert_eq!(own.post(&report).await.ok(200), first);
        // The id decides, whatever else a repetition says of the run.
        let other = own.report(&json!({"external_id": report["external_id"], "status": "success", "target": "b2"}));
        assert_eq!(own.post(&other).await.ok(200), first);
        assert_eq!(own.server.kinds_of(&own.acme, "backup.job.failed").await.len(), 1);
        let stranger = own.server.tenant("other").await;
        let (key, device) = (own.server.ingest_key(&stranger).await, own.server.machine(&stranger, "web01", None).await);
        let theirs = with(&report, &json!({"device": device}));
        assert_ne!(own.server.report(&key, &theirs).await["id"], first["id"], "of another tenant it is another");
    }

    async fn an_external_id_of_another_run_hides_no_failure(setup: Setup) {
        let own = Sender::open(setup).await;
        own.server.machine(&own.acme, "web02", None).await;
        let report = own.report(&json!({"external_id": "DC01-2026-01-15", "status": "success"}));
        own.post(&report).await.is(201);
        for other in [json!({"device": "web02"}), json!({"kind": "verify"}), json!({"job": "database"})] {
            let answer = own.post(&with(&with(&report, &json!({"status": "failed"})), &other)).await;
            let problem = answer.problem("invalid_fields");
            assert_eq!((&problem["errors"][0]["pointer"], &problem["errors"][0]["code"]), (&json!("/external_id"), &json!("duplicate")), "{other}");
        }
        assert_eq!(own.counted().await, [1, 0, 0, 0]);
    }

    async fn a_key_of_an_organization_finds_its_own_among_many_of_one_name(setup: Setup) {
        let own = Sender::open(setup).await;
        let elsewhere = organization(&own.server, &own.acme, "initech").await;
        for _ in 0..51 {
            own.server.machine(&own.acme, "dc01", Some(&elsewhere)).await;
        }
        let nobodys = own.server.machine(&own.acme, "dc01", None).await;
        let (globex, key) = own.server.bound_ingest_key(&own.acme, "globex").await;
        let report = |id: &str| with(&backup("DC01", "success", own.server.now()), &json!({"external_id": id}));
        own.server.report(&key, &report("nobody's")).await;
        let of = async |organization: Option<&str>| counts(&own.server.posture(&own.acme, organization).await["jobs_24h"])[0];
        assert_eq!((of(None).await, of(Some(&globex)).await), (1, 0), "{nobodys}");
        own.server.machine(&own.acme, "dc01", Some(&globex)).await;
        own.server.report(&key, &report("its own")).await;
        assert_eq!((of(None).await, of(Some(&globex)).await, of(Some(&elsewhere)).await), (1, 1, 0));
        own.server.machine(&own.acme, "dc01", Some(&globex)).await;
        assert_eq!(own.server.post_report(&key, &report("a clone")).await.problem("invalid_fields")["errors"][0]["code"], "ambiguous");
    }

    async fn of_many_at_once_on_two_nodes_one_is_the_first(setup: Setup) {
        let own = Sender::open(setup).await;
        let second = own.server.second_node().await;
        let report = own.report(&json!({"status": "failed"}));
        let send = async |n: usize| {
            let node = if n.is_multiple_of(2) { &own.server } else { &second };
            node.post_report(&own.key, &report).await
        };
        let answers = join_all((0..64).map(send)).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
        let first = answers[0].json();
        for answer in &answers {
            assert!([200, 201].contains(&answer.status), "{}", answer.json());
            assert_eq!(answer.json(), first);
        }
        assert_eq!(own.counted().await, [0, 0, 1, 0]);
        assert_eq!(own.server.kinds_of(&own.acme, "backup.job.failed").await.len(), 1);
    }

    async fn what_the_tools_print_decides(setup: Setup) {
        let own = Sender::open(setup).await;
        let dry = RESTIC.replace("\"message_type\"", "\"dry_run\":true,\"message_type\"");
        for (tool, kind, exit_code, stdout, stderr, status) in [
            ("restic", "backup", 0, RESTIC, "", "success"),
            ("restic", "backup", 0, RESTIC, MISSING, "warning"),
            ("restic", "backup", 0, RESTIC, "/srv/gone does not exist, skipping", "warning"),
            ("restic", "backup", 3, RESTIC, MISSING, "warning"),
            ("restic", "backup", 3, "", MISSING, "failed"),
            ("restic", "backup", 0, "", "", "failed"),
            ("restic", "backup", 0, &dry, "", "failed"),
            ("restic", "backup", 1, RESTIC, "Fatal: wrong password or no key found", "failed"),
            ("restic", "backup", 12, "", "Fatal: wrong password or no key found", "failed"),
            ("restic", "backup", 137, "", "", "failed"),
            ("restic", "backup", -9, "", "", "failed"),
            ("restic", "verify", 0, "no errors were found", "", "success"),
            ("restic", "verify", 1, "", "Fatal: repository contains errors", "failed"),
            ("restic", "prune", 0, "", "", "success"),
            ("borg", "backup", 0, BORG, "", "success"),
            ("borg", "backup", 1, BORG, "/srv/gone: file changed while we backed it up", "warning"),
            ("borg", "backup", 105, BORG, "", "warning"),
            ("borg", "backup", 0, "", "", "failed"),
            ("borg", "backup", 2, "", "Repository /srv/borg does not exist.", "failed"),
            ("borg", "backup", 130, "", "Keyboard interrupt", "failed"),
            ("borg", "verify", 0, "", "", "success"),
            ("borg", "restore_test", 0, "", "", "success"),
        ] {
            let report = own.printed(tool, kind, exit_code, stdout, stderr);
            let answer = own.post(&report).await.ok(201);
            assert_eq!(answer["status"], status, "{report:#}: {answer:#}");
            let reasons = answer["reasons"].as_array().unwrap();
            assert_eq!(reasons.is_empty(), status == "success", "{report:#}: {answer:#}");
            assert!(reasons.iter().all(|one| one["code"].is_string() && one["detail"].is_string()));
        }
        assert_eq!(own.counted().await, [2, 5, 10, 0], "of backups alone");
    }

    async fn what_another_tool_says_of_itself_is_taken_as_declared(setup: Setup) {
        let own = Sender::open(setup).await;
        let declared = json!({"tool_name": "Veeam", "message": "2 of 3 volumes\nwere saved", "size_bytes": 1_000, "status": "warning"});
        let answer = own.post(&own.report(&declared)).await.ok(201);
        assert_eq!(answer["reasons"], json!([{"code": "declared", "detail": "2 of 3 volumes were saved"}]));
        assert_eq!(own.server.aggregate(&own.acme, "").await["totals"]["storage_bytes"], 1_000);
        let failed = json!({"external_id": "2", "tool_name": "Veeam", "status": "failed", "message": null});
        let answer = own.post(&own.report(&failed)).await.ok(201);
        let silent = |what: &str| json!([{"code": "declared", "detail": format!("The script reported a {what} and no message.")}]);
        assert_eq!((&answer["status"], &answer["reasons"]), (&json!("failed"), &silent("failure")));
        for (id, status, message, reasons) in [
            ("3", "failed", "", silent("failure")), ("4", "warning", " ", silent("warning")), ("5", "success", "fine", json!([])),
        ] {
            let report = own.report(&json!({"external_id": id, "status": status, "message": message}));
            assert_eq!(own.post(&report).await.ok(201)["reasons"], reasons, "{status}");
        }
        let event = own.server.events_of(&own.acme, "backup.job.failed").await.remove(0);
        assert_eq!((&event["data"]["is_declared"], &event["data"]["tool"], &event["data"]["tool_name"]), (&json!(true), &json!("other"), &json!("Veeam")));
    }

    async fn a_target_that_the_policy_does_not_name_is_told_of(setup: Setup) {
        let own = Sender::open(setup).await;
        let device = format!("device_id={}", own.device);
        let told = async |id: &str, more: Value| {
            let report = own.report(&with(&json!({"external_id": id}), &more));
            let answer = own.post(&report).await.ok(201);
            assert_eq!(own.post(&report).await.ok(200), answer, "it is stored");
            let details = answer["reasons"].as_array().unwrap().iter().map(|one| format!("{}: {}", one["code"].as_str().unwrap(), one["detail"].as_str().unwrap()));
            details.collect::<Vec<_>>()
        };
        assert_eq!(told("1", json!({"target": "NAS"})).await, Vec::<String>::new(), "no policy names targets");
        own.server.set_policy(&own.acme, "", &json!({"targets": targets()})).await;
        let unknown = |target: &str| format!("unknown_target: The policy names nas and b2; this run is on \"{target}\".");
        assert_eq!(told("2", json!({"target": "NAS"})).await, [unknown("NAS")]);
        assert_eq!(told("3", json!({"target": "nas "})).await, Vec::<String>::new(), "spaces at the ends are no part of a name");
        assert_eq!(told("4", json!({"target": "B2", "kind": "verify"})).await, Vec::<String>::new(), "of a backup alone");
        let failed = json!({"target": "B2", "status": "failed", "message": "disk full"});
        assert_eq!(told("5", failed).await, ["declared: disk full".to_owned(), unknown("B2")]);
        let event = own.server.events_of(&own.acme, "backup.job.failed").await.remove(0);
        assert_eq!(event["data"]["reasons"][1]["code"], "unknown_target");
        // The policy that holds for the device decides.
        let nas = targets()[0].clone();
        own.server.set_policy(&own.acme, &device, &json!({"targets": [nas]})).await;
        assert_eq!(told("6", json!({"target": "b2"})).await, ["unknown_target: The policy names nas; this run is on \"b2\".".to_owned()]);
        own.server.set_policy(&own.acme, &device, &json!({"targets": []})).await;
        assert_eq!(told("7", json!({"target": "tape"})).await, Vec::<String>::new());
    }

    async fn a_failed_job_is_told_of_with_its_reasons(setup: Setup) {
        let own = Sender::open(setup).await;
        let now = own.server.now();
        own.post(&own.printed("restic", "backup", 0, RESTIC, "")).await.is(201);
        own.post(&own.printed("restic", "backup", 3, RESTIC, MISSING)).await.is(201);
        assert_eq!(own.server.kinds_of(&own.acme, "backup.job.").await, Vec::<String>::new());
        let report = own.printed("restic", "backup", 12, "", "Fatal: wrong password or no key found");
        let answer = own.post(&report).await.ok(201);
        let event = own.server.events_of(&own.acme, "backup.job.").await.remove(0);
        assert_eq!(event["type"], "backup.job.failed");
        assert_eq!(event["data"], json!({
            "id": answer["id"], "external_id": report["external_id"], "device_id": own.device, "organization_id": null, "job": "nightly",
            "kind": "backup", "tool": "restic", "tool_name": null, "target": "nas", "status": "failed", "is_declared": false,
            "reasons": answer["reasons"], "exit_code": 12, "started_at": now.plus_ms(-600_000), "ended_at": now, "received_at": now,
            "snapshot_id": null, "size_bytes": null, "added_bytes": null, "files": null,
        }));
        own.post(&own.printed("restic", "verify", 1, "", "Fatal: repository contains errors")).await.is(201);
        let kinds: Vec<Value> = own.server.events_of(&own.acme, "backup.job.").await.iter().map(|event| event["data"]["kind"].clone()).collect();
        assert_eq!(kinds, ["backup", "verify"]);
    }

    async fn a_device_is_named_by_its_id_or_by_a_hostname_that_is_its_own(setup: Setup) {
        let own = Sender::open(setup).await;
        let (globex, bound) = own.server.bound_ingest_key(&own.acme, "globex").await;
        let (initech, theirs) = own.server.bound_ingest_key(&own.acme, "initech").await;
        let at_globex = own.server.machine(&own.acme, "DB01.acme.test", Some(&globex)).await;
        let at_initech = own.server.machine(&own.acme, "db01.acme.test", Some(&initech)).await;
        let stranger = own.server.tenant("other").await;
        let foreign = own.server.machine(&stranger, "elsewhere", None).await;
        let mut n = 0;
        let mut report = |device: &str| {
            n += 1;
            own.report(&json!({"external_id": n.to_string(), "device": device}))
        };
        for (key, device, status) in [
            (&own.key, "web01", 201), (&own.key, "WEB01", 201), (&own.key, at_globex.as_str(), 201), (&own.key, "db01.ACME.test", 422),
            (&bound, "db01.acme.TEST", 201), (&theirs, "db01.acme.test", 201), (&bound, at_initech.as_str(), 422), (&bound, at_globex.as_str(), 201),
            (&own.key, "db01", 422), (&own.key, "nobody", 422), (&own.key, "dev_01jd8z6v2mfkpb7h3q9xw5t4ra", 422), (&own.key, foreign.as_str(), 422),
            (&own.key, "elsewhere", 422),
        ] {
            let answer = own.server.post_report(key, &report(device)).await;
            assert_eq!(answer.status, status, "{device}: {}", answer.json());
            if status == 422 {
                assert_eq!(answer.pointers(), ["/device"], "{device}");
            }
        }
        let codes = async |device: &str| own.post(&own.report(&json!({"device": device}))).await.problem("invalid_fields")["errors"][0]["code"].clone();
        assert_eq!((codes("db01.acme.test").await, codes("nobody").await), (json!("ambiguous"), json!("unknown_reference")));
        for (organization, success) in [(&globex, 3), (&initech, 1)] {
            assert_eq!(counts(&own.server.posture(&own.acme, Some(organization)).await["jobs_24h"]), [success, 0, 0, 0]);
        }
        own.server.delete_device(&own.acme, &at_initech).await;
        own.server.report(&own.key, &report("db01.acme.test")).await;
    }

    async fn times_that_cannot_be_are_refused(setup: Setup) {
        let own = Sender::open(setup).await;
        let now = own.server.now();
        let times = |started: i64, ended: i64| json!({"external_id": format!("{started} {ended}"), "started_at": now.plus_ms(started), "ended_at": now.plus_ms(ended)});
        for (started, ended, pointer) in [
            (0, 0, None), (10 * MINUTE_MS, 10 * MINUTE_MS, None), (-DAY_MS, 10 * MINUTE_MS, None), (0, 10 * MINUTE_MS + 1, Some("/ended_at")),
            (1, 0, Some("/ended_at")), (-366 * DAY_MS, -366 * DAY_MS, None), (-367 * DAY_MS, -366 * DAY_MS - 1, Some("/ended_at")),
            (10 * MINUTE_MS + 1, 10 * MINUTE_MS + 1, Some("/started_at")), (-31 * DAY_MS, 0, None), (-31 * DAY_MS - 1, 0, Some("/started_at")),
        ] {
            let answer = own.post(&own.report(&times(started, ended))).await;
            match pointer {
                Some(pointer) => assert_eq!(answer.pointers(), [pointer], "{started} {ended}"),
                None => drop(answer.is(201)),
            }
        }
        // In any zone.
        let zoned = json!({"external_id": "zoned", "started_at": "2026-01-15T11:50:00+02:00", "ended_at": "2026-01-15T05:00:00.5-05:00"});
        own.post(&own.report(&zoned)).await.is(201);
        assert_eq!(at("2026-01-15T05:00:00.5-05:00"), now.plus_ms(500));
        for wrong in ["2026-01-15", "2026-01-15T10:00:00", "yesterday", ""] {
            assert_eq!(own.post(&own.report(&json!({"external_id": "x", "ended_at": wrong}))).await.pointers(), ["/ended_at"], "{wrong}");
        }
    }

    async fn every_bad_field_is_named_at_once(setup: Setup) {
        let own = Sender::open(setup).await;
        let sorted = |mut pointers: Vec<String>| {
            pointers.sort_unstable();
            pointers
        };
        let pointers = async |body: &Value| sorted(own.post(body).await.pointers());
        assert_eq!(pointers(&json!({})).await, ["/device", "/ended_at", "/external_id", "/job", "/kind", "/started_at", "/target", "/tool"]);
        let wrong = json!({"external_id": "", "device": 1, "job": "a\nb", "kind": "copy", "target": "x".repeat(201), "status": "missed", "size_bytes": -1, "more": 1});
        assert_eq!(pointers(&own.report(&wrong)).await, ["/device", "/external_id", "/job", "/kind", "/more", "/size_bytes", "/status", "/target"]);
        assert_eq!(pointers(&own.report(&json!({"exit_code": 0, "stdout": ""}))).await, ["/exit_code", "/stdout"], "of a tool that declares");
        let restic = own.printed("restic", "backup", 0, RESTIC, "");
        assert_eq!(pointers(&with(&restic, &json!({"status": "success", "message": "fine"}))).await, ["/message", "/status"]);
        assert_eq!(pointers(&without(&with(&restic, &json!({"stdout": {"message_type": "summary"}})), &["exit_code"])).await, ["/exit_code", "/stdout"]);
        own.post(&without(&restic, &["stdout", "stderr"])).await.is(201);
        assert_eq!(pointers(&own.report(&json!({"tool": "rsync"}))).await, ["/tool"]);
    }

    async fn output_of_sixteen_mebibytes_is_read_and_of_more_is_not(setup: Setup) {
        let own = Sender::open(setup).await;
        let line = "{\"message_type\":\"status\",\"percent_done\":0.5,\"total_files\":10,\"files_done\":5}\n";
        let long = format!("{}{RESTIC}\n", line.repeat(12_000_000 / line.len()));
        let report = own.printed("restic", "backup", 0, &long, "");
        assert_eq!(own.post(&report).await.ok(201)["status"], "success");
        let longer = own.printed("restic", "backup", 0, &"x".repeat(16 << 20), "");
        own.post(&longer).await.problem("payload_too_large");
        // Values take far more memory than their text.
        let wide = own.printed("restic", "backup", 0, "", "").to_string().replace("\"stdout\":\"\"", &format!("\"stdout\":[{}0]", "0,".repeat(600_000)));
        assert!(wide.contains("[0,0,"));
        let answer = own.server.post(REPORTS).header("authorization", own.key.basic()).header("content-type", "application/json").body(wide).await;
        assert!(answer.problem("payload_too_large")["detail"].as_str().unwrap().contains("values"));
    }

    async fn only_an_ingest_key_reports(setup: Setup) {
        let own = Sender::open(setup).await;
        let report = own.report(&json!({}));
        let key = own.server.key(&own.acme, &["*"]).await;
        for call in [own.server.post(REPORTS), own.server.post(REPORTS).cookie(&own.acme.admin), own.server.post(REPORTS).key(&key.plain)] {
            let answer = call.json(&report).await;
            answer.problem("unauthenticated");
            assert!(answer.header("www-authenticate").starts_with("Basic "));
        }
        own.server.get(REPORTS).header("authorization", own.key.basic()).await.problem("method_not_allowed");
        own.server.post(REPORTS).header("authorization", own.key.basic()).body(report.to_string()).await.problem("unsupported_media_type");
        own.server.revoke_ingest_key(&own.acme, &own.key).await;
        own.post(&report).await.problem("unauthenticated");
        assert_eq!(own.counted().await, [0; 4]);
    }

    async fn a_refused_report_leaves_nothing(setup: Setup) {
        let own = Sender::open(setup).await;
        let report = own.report(&json!({"device": "db01"}));
        own.post(&report).await.problem("invalid_fields");
        own.server.machine(&own.acme, "db01", None).await;
        own.post(&report).await.is(201);
        own.server.judge_for(HOUR_MS).await;
        assert_eq!(own.counted().await, [1, 0, 0, 0]);
    }
}
