//! `/api/search`

mod asked;
mod desk;
mod kept;
mod relevance;
mod seen;

use serde_json::json;
use tenant_control::features::devices::{Platform, Status, Type};

use crate::asset_inventory::{add_all, with};
use crate::support::{Server, Tenancy};
use crate::tickets::{changed, make, organization};

/// A small company: what its people look for is in `relevance.rs`.
pub async fn company(server: &Server) -> Tenancy {
    let acme = server.tenant("acme").await;
    let globex = organization(server, &acme, "globex").await;
    let tickets = [
        json!({"subject": "Printer on floor 3 is jammed", "description": "Paper everywhere.", "priority": "high", "tags": ["hardware"]}),
        json!({"subject": "VPN drops every hour", "requester": {"name": "Zoë Müller", "email": "zoe@globex.test"}, "organization_id": globex}),
        json!({"subject": "New laptop for Anna", "type": "service_request", "description": "Like the printer room's one."}),
        json!({"subject": "Printing from the VPN is slow"}),
        json!({"subject": "Straße gesperrt: deliveries late"}),
    ];
    for ticket in &tickets {
        make(server, &acme, ticket).await;
    }
    let done = make(server, &acme, &json!({"subject": "Printer toner ordered"})).await;
    changed(server, &acme, &done, &json!({"status": "resolved"})).await;
    let devices = vec![
        with("web-01.acme.test", |full| {
            full.device.serial_number = Some("7XK2P13".to_owned());
            full.device.primary_mac = Some("02:fc:00:00:0a:01".to_owned());
            full.device.primary_ip = Some("192.0.2.10".to_owned());
            full.device.model = Some("PowerEdge R640".to_owned());
            full.device.os.name = Some("Debian GNU/Linux 12 (bookworm)".to_owned());
        }),
        with("web-02.acme.test", |full| full.device.primary_ip = Some("192.0.2.11".to_owned())),
        with("DESKTOP-ANNA", |full| {
            full.device.platform = Platform::Windows;
            full.device.r#type = Type::Workstation;
            full.device.status = Status::Offline;
            full.device.os.name = Some("Microsoft Windows 11 Pro".to_owned());
        }),
        with("printer-3", |full| full.device.r#type = Type::Printer),
    ];
    add_all(server, &acme, devices).await;
    acme
}
