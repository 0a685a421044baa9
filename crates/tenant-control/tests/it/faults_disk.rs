//! A power cut and a full disk, on small file systems of the test's own. Where the machine lets nobody mount one, these
//! tests say so and prove nothing.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::load::{Api, Load, Verdict, settle, verify};
use crate::support::process::{Launch, say, until};

const WRITERS: usize = 16;
const WAIT_MAX: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_loses_nothing_that_was_acknowledged() {
    // Before, about when and after the log is first moved into the database file.
    for writes in [200, 1200, 2000] {
        let Some((acknowledged, verdict)) = cut_the_power(writes, None).await else { return };
        assert_eq!(verdict, Verdict::default(), "of {acknowledged} acknowledged writes");
    }
}

/// The counter-proof: a store that does not wait for the disk must be found out by the very same test.
#[tokio::test(flavor = "multi_thread")]
async fn the_power_cut_test_notices_a_store_that_does_not_wait_for_the_disk() {
    let Some((acknowledged, verdict)) = cut_the_power(400, Some("off")).await else { return };
    assert!(!verdict.lost.is_empty(), "all of {acknowledged} writes survived although nothing waited for the disk");
}

/// What is in the image file of a file system is what its disk was given; what only the file system's memory holds
/// is not. So a copy of the file, taken while the server stands still, is the disk after a power cut.
async fn cut_the_power(writes: usize, synchronous: Option<&str>) -> Option<(usize, Verdict)> {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("image");
    let mount = make_disk(&image, &folder.path().join("before"))?;
    let mut launch = Launch::on_folder(&mount.at.join("data"));
    if let Some(synchronous) = synchronous {
        launch = launch.variable("TENANT_CONTROL_TEST_SYNCHRONOUS", synchronous);
    }
    let mut server = launch.start().await;
    let cookie = launch.sign_in();
    let load = Load::start(&server.api(&cookie), "cut", WRITERS);
    load.progress(writes, WAIT_MAX).await;
    server.freeze().await;
    let copy = folder.path().join("copy");
    std::fs::copy(&image, &copy).unwrap();
    // Answers that were on their way when the power went still count: they were given.
    server.kill();
    let acknowledged = load.acknowledged();
    let (notes, seen) = load.finish().await;
    assert_eq!(seen.wrong, Vec::<String>::new());

    let mount = mount_disk(&copy, &folder.path().join("after")).expect("the copy can be mounted like the first");
    let launch = Launch::on_folder(&mount.at.join("data"));
    let server = launch.start().await;
    let verdict = verify(&server.api(&launch.sign_in()), "cut-", &notes).await;
    say(&format!("power cut: {acknowledged} acknowledged writes, {} keys lost", verdict.lost.len()));
    if synchronous.is_none() {
        // It fails when it finds a damaged page.
        launch.run(&["doctor"]);
    }
    Some((acknowledged, verdict))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself() {
    let folder = TempDir::new().unwrap();
    let Some(mount) = mount(&["-t", "tmpfs", "-o", "size=32m,mode=700", "tmpfs"], &folder.path().join("small")) else {
        return;
    };
    let launch = Launch::on_folder(&mount.at.join("data"));
    let mut server = launch.start().await;
    let cookie = launch.sign_in();
    let api = server.api(&cookie);
    let load = Load::start(&api, "full", WRITERS);
    load.progress(100, WAIT_MAX).await;
    let bearer = api.create_key("bearer").await.unwrap();

    let ballast = mount.at.join("ballast");
    fill(&ballast);
    let refused = async || (load.seen().statuses.get(&503).copied() > Some(WRITERS)).then_some(());
    until("writes are refused", WAIT_MAX, refused).await;
    for attempt in 0..10 {
        refuses_writes_and_serves_reads(&api, &format!("refused{attempt}")).await;
    }
    assert_eq!(server.api("").list_with_key(&bearer.text("key")).await.unwrap().status, 200);
    let failed = async || server.stderr().contains("noting last use failed").then_some(());
    until("the use of the key cannot be noted", WAIT_MAX, failed).await;

    std::fs::remove_file(&ballast).unwrap();
    load.progress(100, WAIT_MAX).await;
    until("it is ready again", WAIT_MAX, async || (api.status("/readyz").await == Some(200)).then_some(())).await;
    let (mut notes, seen) = load.finish().await;
    assert_eq!((seen.wrong, seen.unanswered), (Vec::new(), 0));
    assert_eq!(verify(&api, "full-", &notes).await, Verdict::default());
    // And it is all on the disk, not only in the memory of the process, with the use that could not be noted then.
    server.terminate();
    assert_eq!(server.exit(WAIT_MAX).await.code(), Some(0), "{}", server.stderr());
    let server = launch.start().await;
    let api = server.api(&cookie);
    let bearer = api.get(&format!("/api/admin/api-keys?id={}", bearer.text("id"))).await.unwrap();
    assert!(bearer.body["last_used_at"].is_string(), "{}", bearer.body);
    assert_eq!(verify(&api, "full-", &notes).await, Verdict::default());
    settle(&api, &mut notes).await;
    assert_eq!(verify(&api, "full-", &notes).await, Verdict::default());
}

/// Beside a server that has had nothing to write since the disk became full, and so knows nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_a_full_disk_before_a_write_fails() {
    let folder = TempDir::new().unwrap();
    let Some(mount) = mount(&["-t", "tmpfs", "-o", "size=32m,mode=700", "tmpfs"], &folder.path().join("small")) else {
        return;
    };
    let launch = Launch::on_folder(&mount.at.join("data"));
    let _server = launch.start().await;
    launch.run(&["doctor"]);
    let ballast = mount.at.join("ballast");
    fill(&ballast);
    let said = launch.fails(&["doctor"]);
    assert!(said.contains("FAIL  database: the disk takes no writes"), "{said}");
    std::fs::remove_file(&ballast).unwrap();
    launch.run(&["doctor"]);
}

async fn refuses_writes_and_serves_reads(api: &Api, name: &str) {
    let refused = api.create_key(name).await.unwrap();
    assert_eq!((refused.status, refused.code()), (503, "unavailable"), "{}", refused.body);
    assert!(refused.header("retry-after").is_some());
    until("the probe tells it", WAIT_MAX, async || (api.status("/readyz").await == Some(503)).then_some(())).await;
    assert_eq!(api.status("/healthz").await, Some(200));
    let read = api.get("/api/admin/api-keys").await.unwrap();
    assert_eq!(read.status, 200, "{}", read.body);
}

/// Writes until there is no room for a single byte more, also against others who write meanwhile.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write(&vec![1; size]).is_ok_and(|written| written > 0) {}
    }
}

/// A new ext4 in a file, mounted. It writes by itself only after ten minutes: what is in the file before that was
/// asked for.
fn make_disk(image: &Path, at: &Path) -> Option<Mount> {
    std::fs::File::create(image).unwrap().set_len(64 << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image).output();
    match made {
        Ok(output) if output.status.success() => mount_disk(image, at),
        Ok(output) => skip(&format!("mkfs.ext4: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => skip(&format!("mkfs.ext4: {error}")),
    }
}

fn mount_disk(image: &Path, at: &Path) -> Option<Mount> {
    mount(&["-o", "loop,commit=600", &image.display().to_string()], at)
}

/// A mounted file system. The servers on it must be gone before it is.
struct Mount {
    at: std::path::PathBuf,
}

fn mount(what: &[&str], at: &Path) -> Option<Mount> {
    std::fs::create_dir(at).unwrap();
    match Command::new("mount").args(what).arg(at).output() {
        Ok(output) if output.status.success() => Some(Mount { at: at.to_owned() }),
        Ok(output) => skip(&format!("mount: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => skip(&format!("mount: {error}")),
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.at).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").arg("--lazy").arg(&self.at).status();
        }
    }
}

fn skip<T>(reason: &str) -> Option<T> {
    say(&format!(
        "SKIPPED, this machine cannot make a file system for the test (root and loop devices are needed): {reason}"
    ));
    None
}
