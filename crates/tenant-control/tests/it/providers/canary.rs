//! Secrets of clouds in what developers print: `Debug`, log lines of every level, and panics.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::sync::{Arc, Mutex};

use cloud_fleet::providers::input::{ProviderAction, ProviderBody, ProviderInput, ProviderReplacement};
use cloud_fleet::providers::store::StoredProvider;
use cloud_fleet::settings::CloudSettings;
use cloud_fleet::worker::store::DueOperation;
use clouds::{CloudAdapter, CloudCredentials, CloudKind, CloudRequest, CloudResponse, MachineSpec};
use kernel::base::seal::SealedValue;
use kernel::base::{
    FaultPoints, InjectedFault, Keyring, LockedSecretsFile, MINUTE_MS, RandomSource, Secrets, SecretsSource,
};

use super::*;
use crate::support::clouds::{VMS, order_body};
use crate::webhooks::EVENTS;

const CANARY: &str = "canary-0123456789-abcdef";

/// A type with `Debug` has two implementations of this, and does not compile where one is asked for.
trait HasNoDebug<Marker> {
    fn assert() {}
}

struct Printable;

impl<T: ?Sized> HasNoDebug<()> for T {}
impl<T: ?Sized + Debug> HasNoDebug<Printable> for T {}

#[test]
fn what_holds_a_secret_does_not_print_it() {
    <StoredProvider as HasNoDebug<_>>::assert();
    <ProviderInput as HasNoDebug<_>>::assert();
    <ProviderBody as HasNoDebug<_>>::assert();
    <ProviderAction as HasNoDebug<_>>::assert();
    <ProviderReplacement as HasNoDebug<_>>::assert();
    <DueOperation as HasNoDebug<_>>::assert();
    <dyn CloudAdapter as HasNoDebug<_>>::assert();
    <CloudSettings as HasNoDebug<_>>::assert();
    <Keyring as HasNoDebug<_>>::assert();
    <SecretsSource as HasNoDebug<_>>::assert();
    <LockedSecretsFile as HasNoDebug<_>>::assert();
    let credentials = CloudCredentials::parse(CloudKind::Hetzner, &json!({"token": CANARY})).unwrap();
    let headers = || vec![("authorization".to_owned(), format!("Bearer {CANARY}"))];
    let request =
        CloudRequest { method: "GET", url: "https://cloud.test/".to_owned(), headers: headers(), body: CANARY.into() };
    let response = CloudResponse { status: 200, headers: headers(), body: CANARY.into() };
    let spec = MachineSpec {
        operation_id: "op_1".to_owned(),
        name: "web".to_owned(),
        region: "fsn1".to_owned(),
        size: "cx22".to_owned(),
        image: "debian-12".to_owned(),
        tags: BTreeMap::new(),
        user_data: Some(CANARY.to_owned()),
        ssh_keys: Vec::new(),
    };
    let secrets = Secrets::parse(&Secrets::generate_text(&RandomSource::System).unwrap()).unwrap();
    let printed: [&dyn Debug; 7] = [
        &credentials,
        &Some(&credentials),
        &request,
        &response,
        &spec,
        &SealedValue::from(CANARY.as_bytes().to_vec()),
        &secrets,
    ];
    for one in printed {
        for text in [format!("{one:?}"), format!("{one:#?}")] {
            assert!(!text.contains("canary") && !text.contains(&format!("{:?}", CANARY.as_bytes())), "{text}");
        }
    }
}

/// All that is written to it.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

over_http! {
    /// Each test has a process of its own, and with it the log and the hook for panics.
    async fn a_job_that_panics_prints_no_secret(setup: Setup) {
        let written = Written::default();
        let log = written.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        subscriber.with_writer(move || log.clone()).try_init().expect("no other test of this process logs");
        let panics = written.clone();
        std::panic::set_hook(Box::new(move |panic| writeln!(panics.clone(), "{panic} {panic:?}").unwrap()));
        let faults = FaultPoints::new(|place| {
            assert_ne!(place, "cloud.submit.before", "as the test wants it");
            InjectedFault::None
        });
        let (server, clouds) = open(setup.with_faults(faults)).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let token = stub.token("acme", Rights::All);
            let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
            let order = with(&order_body(stub, &provider), &json!({"user_data": CANARY}));
            let vm = server.post_order(&acme, &order).await.ok(202);
            server.cloud_work_for(5 * MINUTE_MS).await;
            assert_eq!(stub.count(Asked::Create), 0);
            let mut shown = server.read_vm(&acme, &vm).await.to_string();
            for path in [PROVIDERS, VMS, AUDIT, &format!("{EVENTS}?view=feed&limit=200")] {
                shown += &String::from_utf8_lossy(&server.get(path).cookie(&acme.admin).await.is(200).body);
            }
            // The settings hold the adapters that are open.
            for text in [shown, written.text(), format!("{:?}", server.app.settings)] {
                assert!(!text.contains(&token) && !text.contains(CANARY), "{text}");
            }
        }
        let text = written.text();
        assert!(text.contains("as the test wants it") && text.contains("it panicked"), "{text}");
    }
}
