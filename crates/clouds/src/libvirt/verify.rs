//! Whether the host answers, and what it can do. Tenants have no credentials for it: what is missing is the operator's to mend.

use kernel::base::sha256;
use virt::connect::Connect;
use virt::error::Error;

use super::capabilities::read_guest_kind;
use super::catalog::list_regions;
use super::connection::Host;
use super::errors::to_cloud_error;
use crate::error::RequestEffect;
use crate::message::to_hex;
use crate::verification::check_regions;
use crate::{AccessCheck, CloudError, CloudIdentity, Verification};

const ASK_OPERATOR: &str = "Ask the operator of this server to let it do this on the libvirt host.";

/// The answers of a host.
struct HostAnswers {
    identity: CloudIdentity,
    listed: Result<(), CloudError>,
    /// Whether it runs full virtual machines.
    runs_machines: Result<bool, CloudError>,
}

pub async fn verify_access(host: &std::sync::Arc<Host>, regions: &[String]) -> Verification {
    let identity = AccessCheck::new("identity", "connect", "call");
    let list = AccessCheck::new("list_machines", "list domains", "call");
    let create = AccessCheck::new("create_machines", "read capabilities", "call");
    match host.read(ask_host).await {
        Ok(answers) => {
            let create = match &answers.runs_machines {
                Ok(true) => create.allowed(),
                Ok(false) => create.denied("no_guests", "The host runs no full virtual machines."),
                Err(error) => create.failed(error, ASK_OPERATOR),
            };
            let mut checks = vec![identity.allowed(), list.judged(&answers.listed, ASK_OPERATOR), create];
            checks.extend(check_regions("read the region", regions, Some(&Ok(list_regions()))));
            Verification { identity: Some(answers.identity), checks, failure: None }
        }
        Err(error) => {
            let mut checks = vec![identity.failed(&error, ASK_OPERATOR), list, create];
            checks.extend(check_regions("read the region", regions, None));
            Verification { identity: None, checks, failure: Some(error) }
        }
    }
}

fn ask_host(connect: &Connect) -> Result<HostAnswers, CloudError> {
    let explain = |error: Error| to_cloud_error(&error, RequestEffect::Read);
    let driver = connect.get_type().map_err(explain)?;
    let name = connect.get_hostname().map_err(explain)?;
    // Its name is the operator's business. The hash says whether it is the same host as before.
    let account_id = to_hex(&sha256(format!("libvirt host {name}").as_bytes())[..8]);
    Ok(HostAnswers {
        identity: CloudIdentity { account_id, principal: format!("libvirt with the driver {driver}") },
        listed: connect.list_all_domains(0).map(|_| ()).map_err(explain),
        runs_machines: connect
            .get_capabilities()
            .map(|capabilities| read_guest_kind(&capabilities).is_some())
            .map_err(explain),
    })
}
