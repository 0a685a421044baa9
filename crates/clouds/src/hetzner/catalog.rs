//! What Hetzner offers.

use std::collections::BTreeSet;

use kernel::base::Timestamp;
use serde_json::Value;

use super::HetznerAdapter;
use super::machines::{load_currency, read_cost};
use crate::json::{GB, GIB, find_bytes, find_count, find_text, find_value, list_values};
use crate::rest::RestClient;
use crate::{CatalogItem, CloudError};

const PAGE_SIZE: (&str, &str) = ("per_page", "50");

pub async fn list_locations(client: &RestClient, now: Timestamp) -> Result<Vec<CatalogItem>, CloudError> {
    let locations = client.get_all("/locations", &[PAGE_SIZE], "locations", now).await?;
    Ok(locations
        .iter()
        .filter_map(|location| {
            let id = find_text(location, &["name"])?.to_owned();
            let name = match (find_text(location, &["city"]), find_text(location, &["country"])) {
                (Some(city), Some(country)) => format!("{city}, {country}"),
                _ => id.clone(),
            };
            Some(CatalogItem { id, name, ..CatalogItem::default() })
        })
        .collect())
}

/// Types that can be ordered now; with a region, in it and with the price there.
pub async fn list_server_types(
    adapter: &HetznerAdapter,
    region: Option<&str>,
    now: Timestamp,
) -> Result<Vec<CatalogItem>, CloudError> {
    let currency = load_currency(adapter, now).await?;
    let types = adapter.client.get_all("/server_types", &[PAGE_SIZE], "server_types", now).await?;
    let offered = types.iter().filter(|kind| is_offered(kind, region));
    Ok(offered
        .filter_map(|kind| {
            let id = find_text(kind, &["name"])?.to_owned();
            Some(CatalogItem {
                name: find_text(kind, &["description"]).unwrap_or(&id).to_owned(),
                vcpus: find_count(kind, &["cores"]),
                memory_bytes: find_bytes(kind, &["memory"], GIB),
                disk_bytes: find_bytes(kind, &["disk"], GB),
                cost: region.zip(currency.as_deref()).and_then(|(region, currency)| read_cost(kind, region, currency)),
                id,
            })
        })
        .collect())
}

/// Whether a type is deprecated or sold out is told for each of its locations. Older versions of the API tell the first for all
/// together, and nothing of the second.
fn is_offered(kind: &Value, region: Option<&str>) -> bool {
    if kind.get("deprecated").and_then(Value::as_bool) == Some(true) {
        return false;
    }
    let is_asked = |place: &&Value, key: &str| region.is_none_or(|region| find_text(place, &[key]) == Some(region));
    if find_value(kind, &["locations"]).is_some() {
        let mut places = list_values(kind, &["locations"]);
        let is_sold = |place: &Value| {
            let is_available = place.get("available").and_then(Value::as_bool).unwrap_or(true);
            is_available && find_value(place, &["deprecation"]).is_none()
        };
        places.any(|place| is_asked(&place, "name") && is_sold(place))
    } else {
        list_values(kind, &["prices"]).any(|price| is_asked(&price, "location"))
    }
}

/// Images of systems, newest first. An image has the same name for every processor, and the size decides which is used.
pub async fn list_images(client: &RestClient, now: Timestamp) -> Result<Vec<CatalogItem>, CloudError> {
    let query = [PAGE_SIZE, ("type", "system"), ("status", "available"), ("sort", "created:desc")];
    let images = client.get_all("/images", &query, "images", now).await?;
    let mut seen = BTreeSet::new();
    Ok(images
        .iter()
        .filter(|image| find_value(image, &["deprecated"]).is_none())
        .filter_map(|image| {
            let id = find_text(image, &["name"]).map(str::to_owned);
            let id = id.or_else(|| find_count(image, &["id"]).map(|id| id.to_string()))?;
            let name = find_text(image, &["description"]).unwrap_or(&id).to_owned();
            Some(CatalogItem { id, name, ..CatalogItem::default() })
        })
        .filter(|image| seen.insert(image.id.clone()))
        .collect())
}
