//! `/metrics`: every series says what it is.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::command::Desk;
use crate::tidy::{OURS, code, sources};

const DESCRIPTIONS: &str = "crates/tenant-control/src/cli/metrics/descriptions.rs";

#[tokio::test(flavor = "multi_thread")]
async fn every_series_has_help_and_the_process_and_the_build_are_among_them() {
    let desk = Desk::new();
    let process = desk.serve(&["--metrics-listen", "127.0.0.1:0", "--log-format", "json"]);
    let line: Value = serde_json::from_str(&process.logs(&["metrics are served"])).unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(process.url("/healthz")).send().await.unwrap();
    let address = format!("http://{}/metrics", line["bound"].as_str().expect("its address"));
    let text = client.get(address).send().await.unwrap().text().await.unwrap();

    let named = |mark: &str| -> BTreeSet<String> {
        let names = text.lines().filter_map(|line| line.strip_prefix(mark)?.split(' ').next().map(str::to_owned));
        names.collect()
    };
    let (described, typed) = (named("# HELP "), named("# TYPE "));
    assert_eq!(described, typed, "{text}");
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(described.contains(name) || described.contains(family), "{line}");
    }

    let value = |name: &str| -> f64 {
        let found = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        found.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
    };
    assert!(text.contains(&format!("tenant_control_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"))));
    assert!(text.contains("# TYPE process_cpu_seconds_total counter\n"));
    assert!(value("process_resident_memory_bytes") > 1e6, "{text}");
    assert!(value("process_cpu_seconds_total") >= 0.0);
    assert!(value("process_open_fds") > 3.0 && value("process_open_fds") < value("process_max_fds"), "{text}");
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let age = now - value("process_start_time_seconds");
    assert!((-60.0..3_600.0).contains(&age), "{age} s old: {text}");
}

#[test]
fn every_series_of_the_sources_is_described_and_no_other() {
    let mut recorded = BTreeSet::new();
    for (_, text) in sources(OURS) {
        for kind in ["counter!(\"", "gauge!(\"", "histogram!(\""] {
            let names = code(&text)
                .split(kind)
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
                .map(str::to_owned)
                .collect::<Vec<_>>();
            recorded.extend(names);
        }
    }
    let (_, text) = sources(OURS).into_iter().find(|(path, _)| path == DESCRIPTIONS).expect("the descriptions");
    let named = text.lines().filter_map(|line| line.trim_start().strip_prefix("(\"")?.split('"').next());
    assert_eq!(named.map(str::to_owned).collect::<BTreeSet<_>>(), recorded, "name each in {DESCRIPTIONS}");
}
