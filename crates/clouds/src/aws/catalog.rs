//! What a region of AWS offers.

use std::collections::BTreeSet;

use kernel::base::Timestamp;

use super::call_clock::CallClock;
use super::client::AwsClient;
use super::instance_types::read_size;
use super::query::{AwsCall, read_answer};
use super::xml::XmlElement;
use crate::{CatalogItem, CloudError};

/// Some 10 pages of 100 are all current types of a large region.
const SIZE_PAGES_MAX: usize = 40;
/// More are of no use in a list to choose from.
const IMAGES_MAX: usize = 500;

/// Amazon Linux, Ubuntu (Canonical) and Debian, by their publishers' accounts. Any other image can be used by its id.
const IMAGE_OWNERS: [&str; 3] = ["amazon", "099720109477", "136693071363"];
const IMAGE_NAMES: [&str; 4] =
    ["al2023-ami-2023*", "ubuntu/images/hvm-ssd/ubuntu-*", "ubuntu/images/hvm-ssd-gp3/ubuntu-*", "debian-1?-*"];

/// The regions that are enabled in the account.
pub async fn list_regions(client: &AwsClient, region: &str, now: Timestamp) -> Result<Vec<CatalogItem>, CloudError> {
    let call = AwsCall::ec2(region, "DescribeRegions");
    let response = client.send(&call, now).await?;
    let mut names = BTreeSet::new();
    read_answer(&response, &call, &["regionInfo", "item"], |item| {
        names.extend(item.find_text(&["regionName"]).map(str::to_owned));
    })?;
    Ok(names.into_iter().map(|name| CatalogItem { id: name.clone(), name, ..CatalogItem::default() }).collect())
}

pub async fn list_sizes(client: &AwsClient, region: &str, now: Timestamp) -> Result<Vec<CatalogItem>, CloudError> {
    let clock = CallClock::start(now);
    let mut sizes = Vec::new();
    let mut token: Option<String> = None;
    for _ in 0..SIZE_PAGES_MAX {
        let call = AwsCall::ec2(region, "DescribeInstanceTypes")
            .param("MaxResults", "100")
            .filter("current-generation", &["true"])
            .optional("NextToken", token.as_deref());
        let response = client.send(&call, clock.now()).await?;
        let root = read_answer(&response, &call, &["instanceTypeSet", "item"], |item| sizes.extend(read_size(&item)))?;
        token = root.find_text(&["nextToken"]).map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    sizes.sort_by(|a, b| (a.vcpus, a.memory_bytes, &a.id).cmp(&(b.vcpus, b.memory_bytes, &b.id)));
    Ok(sizes
        .into_iter()
        .map(|size| CatalogItem {
            name: size.id.clone(),
            id: size.id,
            vcpus: size.vcpus,
            memory_bytes: size.memory_bytes,
            disk_bytes: size.disk_bytes,
            cost: None,
        })
        .collect())
}

/// The newest of each line of the well-known images, then the account's own as far as there is room: an account may have an
/// image of each night's backup. Both are newest first.
pub async fn list_images(client: &AwsClient, region: &str, now: Timestamp) -> Result<Vec<CatalogItem>, CloudError> {
    let known = describe_known_images(region, &IMAGE_OWNERS, &IMAGE_NAMES);
    let own = AwsCall::ec2(region, "DescribeImages").param("Owner.1", "self").filter("state", &["available"]);
    let mut images = load_images(client, &known, now).await?;
    let mut lines = BTreeSet::new();
    images.retain(|image| lines.insert(line_of(&image.name)));
    images.extend(load_images(client, &own, now).await?);
    images.truncate(IMAGES_MAX);
    Ok(images
        .into_iter()
        .map(|image| CatalogItem { id: image.id, name: image.name, ..CatalogItem::default() })
        .collect())
}

/// The newest Amazon Linux, for a dry run. `None` if the account sees none.
pub async fn find_image(client: &AwsClient, region: &str, now: Timestamp) -> Result<Option<String>, CloudError> {
    let call = describe_known_images(region, &["amazon"], &["al2023-ami-2023.*-x86_64"]);
    Ok(load_images(client, &call, now).await?.into_iter().next().map(|image| image.id))
}

fn describe_known_images<'a>(region: &'a str, owners: &[&str], names: &[&str]) -> AwsCall<'a> {
    let call = AwsCall::ec2(region, "DescribeImages");
    let call =
        owners.iter().enumerate().fold(call, |call, (index, owner)| call.param(format!("Owner.{}", index + 1), *owner));
    call.filter("name", names).filter("state", &["available"])
}

struct AwsImage {
    id: String,
    name: String,
    created_at: String,
}

/// Images, newest first.
async fn load_images(client: &AwsClient, call: &AwsCall<'_>, now: Timestamp) -> Result<Vec<AwsImage>, CloudError> {
    let response = client.send(call, now).await?;
    let mut images = Vec::new();
    read_answer(&response, call, &["imagesSet", "item"], |item| images.extend(read_image(&item)))?;
    images.sort_by(|a: &AwsImage, b| (&b.created_at, &b.name).cmp(&(&a.created_at, &a.name)));
    Ok(images)
}

fn read_image(item: &XmlElement<'_>) -> Option<AwsImage> {
    let id = item.find_text(&["imageId"])?.to_owned();
    let name = item.find_text(&["name"]).unwrap_or(&id).to_owned();
    Some(AwsImage { name, created_at: item.find_text(&["creationDate"]).unwrap_or_default().to_owned(), id })
}

/// The name without its dates and build numbers, which all images of a line share: publishers add images every week.
fn line_of(name: &str) -> String {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut line = String::new();
    let mut rest = name;
    while let Some(start) = rest.find(is_number) {
        let (before, from) = rest.split_at(start);
        let (number, after) = from.split_at(from.find(|c| !is_number(c)).unwrap_or(from.len()));
        line.push_str(before);
        // Versions, such as 24.04 or 6.1, are shorter than dates and times.
        line.push_str(if number.split('.').any(|digits| digits.len() >= 4) { "*" } else { number });
        rest = after;
    }
    line + rest
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn a_line_of_images_has_no_dates() {
        for (name, line) in [
            ("al2023-ami-2023.11.20260427.1-kernel-6.1-x86_64", "al*-ami-*-kernel-6.1-x86_64"),
            (
                "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260821",
                "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*",
            ),
            ("debian-12-arm64-20260717-1811", "debian-12-arm64-*-*"),
            ("mine", "mine"),
            ("", ""),
        ] {
            assert_eq!(line_of(name), line);
        }
    }
}
