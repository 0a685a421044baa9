//! Devices from files beside those that report.

use kernel::auth::open_as_operator;
use tenant_control::features::inventory::import::store::{ImportSummary, import_devices};
use tenant_control::features::inventory::import::{ImportFormat, read_import_file};
use tenant_control::features::organizations;

use crate::support::{Server, Tenancy, over_http};

use super::all;

/// More than are looked at together of those that are called the same.
const CUSTOMERS: usize = 120;

/// What becomes of a file with these lines.
pub async fn import_csv(server: &Server, tenancy: &Tenancy, lines: &str) -> ImportSummary {
    let file = read_import_file(ImportFormat::Csv, lines.as_bytes()).expect("a file");
    import_devices(&open_as_operator(&server.app.store, &tenancy.tenant), file, false).await.expect("an import")
}

over_http! {
    async fn what_a_device_of_each_customer_is_called_is_found_in_each(server: Server) {
        let acme = server.tenant("acme").await;
        let db = open_as_operator(&server.app.store, &acme.tenant);
        let mut lines = String::from("display_name,organization\n");
        for n in 0..CUSTOMERS {
            let slug = format!("customer-{n}");
            organizations::create_named_organization(&db, &slug, &slug).await.expect("an organization");
            lines.extend(["Router,", slug.as_str(), "\n"]);
        }
        let first = import_csv(&server, &acme, &lines).await;
        assert_eq!((first.created, first.updated, first.unchanged), (CUSTOMERS, 0, 0), "{:?}", first.errors);
        let again = import_csv(&server, &acme, &lines).await;
        assert_eq!((again.created, again.updated, again.unchanged), (0, 0, CUSTOMERS), "{:?}", again.errors);
        assert_eq!(all(&server, &acme).await.len(), CUSTOMERS);
        // Without the customer it may be any of them.
        let any = import_csv(&server, &acme, "display_name\nRouter\n").await;
        assert_eq!(any.errors.len(), 1);
        assert_eq!(any.errors[0].detail, "several devices are known by what the row says: give the id");
    }

    async fn a_row_with_an_error_is_no_device_that_would_be_made(server: Server) {
        let acme = server.tenant("acme").await;
        let tried = import_csv(&server, &acme, "hostname,type\nweb01,server\nweb02,cat\nweb03,dog\n").await;
        let wrong: Vec<usize> = tried.errors.iter().map(|error| error.row).collect();
        assert_eq!((tried.created, wrong), (1, vec![2, 3]));
        assert!(all(&server, &acme).await.is_empty());
    }
}
