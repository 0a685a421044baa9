//! What DigitalOcean offers.

use kernel::base::Timestamp;
use serde_json::Value;

use super::CURRENCY;
use crate::json::{GIB, MIB, find_amount, find_bytes, find_count, find_text, list_values};
use crate::rest::RestClient;
use crate::{CatalogItem, CloudError, MachineCost};

const PAGE_SIZE: (&str, &str) = ("per_page", "200");

/// The regions that take new droplets.
pub async fn list_open_regions(client: &RestClient, now: Timestamp) -> Result<Vec<CatalogItem>, CloudError> {
    let regions = load_regions(client, now).await?;
    Ok(regions.iter().filter(|region| is_available(region)).filter_map(read_region).collect())
}

/// All regions, with those that only keep the droplets that they have.
pub async fn list_all_regions(client: &RestClient, now: Timestamp) -> Result<Vec<CatalogItem>, CloudError> {
    Ok(load_regions(client, now).await?.iter().filter_map(read_region).collect())
}

async fn load_regions(client: &RestClient, now: Timestamp) -> Result<Vec<Value>, CloudError> {
    client.get_all("/regions", &[PAGE_SIZE], "regions", now).await
}

fn read_region(region: &Value) -> Option<CatalogItem> {
    let id = find_text(region, &["slug"])?.to_owned();
    let name = find_text(region, &["name"]).unwrap_or(&id).to_owned();
    Some(CatalogItem { id, name, ..CatalogItem::default() })
}

pub async fn list_sizes(
    client: &RestClient,
    region: Option<&str>,
    now: Timestamp,
) -> Result<Vec<CatalogItem>, CloudError> {
    let sizes = client.get_all("/sizes", &[PAGE_SIZE], "sizes", now).await?;
    let offered = sizes.iter().filter(|size| is_available(size) && is_in_region(size, region));
    Ok(offered
        .filter_map(|size| {
            let id = find_text(size, &["slug"])?.to_owned();
            let name = find_text(size, &["description"]).map_or_else(|| id.clone(), |text| format!("{text} ({id})"));
            let price = find_amount(size, &["price_monthly"]);
            Some(CatalogItem {
                name,
                vcpus: find_count(size, &["vcpus"]),
                memory_bytes: find_bytes(size, &["memory"], MIB),
                disk_bytes: find_bytes(size, &["disk"], GIB),
                cost: price.map(|amount| MachineCost::new_monthly(amount, CURRENCY)),
                id,
            })
        })
        .collect())
}

/// Images of distributions, newest first.
pub async fn list_images(
    client: &RestClient,
    region: Option<&str>,
    now: Timestamp,
) -> Result<Vec<CatalogItem>, CloudError> {
    let mut images = client.get_all("/images", &[PAGE_SIZE, ("type", "distribution")], "images", now).await?;
    images.retain(|image| is_in_region(image, region));
    let created_at = |image: &Value| find_text(image, &["created_at"]).unwrap_or_default().to_owned();
    images.sort_by_key(|image| std::cmp::Reverse(created_at(image)));
    Ok(images
        .iter()
        .filter_map(|image| {
            let slug = find_text(image, &["slug"]).map(str::to_owned);
            let id = slug.or_else(|| find_count(image, &["id"]).map(|id| id.to_string()))?;
            let words = [find_text(image, &["distribution"]), find_text(image, &["name"])];
            let words: Vec<&str> = words.into_iter().flatten().collect();
            let name = if words.is_empty() { id.clone() } else { words.join(" ") };
            Some(CatalogItem { id, name, ..CatalogItem::default() })
        })
        .collect())
}

fn is_available(item: &Value) -> bool {
    item.get("available").and_then(Value::as_bool).unwrap_or(true)
}

fn is_in_region(item: &Value, region: Option<&str>) -> bool {
    region.is_none_or(|region| list_values(item, &["regions"]).any(|slug| slug.as_str() == Some(region)))
}
