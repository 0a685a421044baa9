//! AWS' partitions: parts of the cloud with accounts, keys and hosts of their own.

use crate::CloudError;

/// Asked where no region is given. It is enabled in every account of the partition `aws`.
pub const DEFAULT_REGION: &str = "us-east-1";

/// The code of an error about a region of any other partition.
const UNSUPPORTED: &str = "unsupported_partition";

/// A partition whose hosts are known.
struct Partition {
    name: &'static str,
    domain: &'static str,
    /// A region that every account of the partition has, where there is one that can be asked for others.
    fallback_region: Option<&'static str>,
}

const STANDARD: Partition = Partition { name: "aws", domain: "amazonaws.com", fallback_region: Some(DEFAULT_REGION) };
const CHINA: Partition = Partition { name: "aws-cn", domain: "amazonaws.com.cn", fallback_region: None };
const GOVERNMENT: Partition = Partition { name: "aws-us-gov", domain: "amazonaws.com", fallback_region: None };
const EUROPEAN_SOVEREIGN: Partition = Partition { name: "aws-eusc", domain: "amazonaws.eu", fallback_region: None };

/// The partition of a region. New regions of the standard one begin with two letters, as all of its regions do.
fn find_partition(region: &str) -> Option<Partition> {
    let (first, rest) = region.split_once('-').unwrap_or((region, ""));
    match (first, rest.split('-').next().unwrap_or_default()) {
        ("cn", _) => Some(CHINA),
        ("us", "gov") => Some(GOVERNMENT),
        ("eusc", _) => Some(EUROPEAN_SOVEREIGN),
        // The isolated partitions: us-iso, us-isob, eu-isoe, us-isof.
        (_, second) if second.starts_with("iso") => None,
        (first, _) if first.len() == 2 => Some(STANDARD),
        _ => None,
    }
}

/// The domain of a region's hosts.
pub fn find_domain(region: &str) -> Result<&'static str, CloudError> {
    let unsupported = || {
        let detail = format!(
            "The region {region} is in a partition of AWS that is not supported. Supported are those of eu-central-1, \
             cn-north-1 (China), us-gov-west-1 (GovCloud) and eusc-de-east-1 (European Sovereign Cloud)."
        );
        CloudError { code: Some(UNSUPPORTED.to_owned()), ..CloudError::invalid(detail) }
    };
    find_partition(region).map(|partition| partition.domain).ok_or_else(unsupported)
}

/// A region that every account of the same partition has, to ask where the given one does not answer.
pub fn find_fallback_region(region: &str) -> Option<&'static str> {
    find_partition(region)?.fallback_region.filter(|fallback| *fallback != region)
}

/// Whether ARNs of this partition can belong to a region that is asked.
pub fn is_supported_partition(name: &str) -> bool {
    [STANDARD, CHINA, GOVERNMENT, EUROPEAN_SOVEREIGN].iter().any(|partition| partition.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_its_own_hosts_and_keys() {
        for (region, domain, fallback) in [
            ("us-east-1", Some("amazonaws.com"), None),
            ("eu-central-1", Some("amazonaws.com"), Some("us-east-1")),
            ("mx-central-1", Some("amazonaws.com"), Some("us-east-1")),
            ("cn-north-1", Some("amazonaws.com.cn"), None),
            ("us-gov-west-1", Some("amazonaws.com"), None),
            ("eusc-de-east-1", Some("amazonaws.eu"), None),
            ("us-iso-east-1", None, None),
            ("us-isob-east-1", None, None),
            ("eu-isoe-west-1", None, None),
            ("new-de-east-1", None, None),
        ] {
            assert_eq!(find_domain(region).ok(), domain, "{region}");
            assert_eq!(find_fallback_region(region), fallback, "{region}");
        }
        let refused = find_domain("us-iso-east-1").map_or_else(|error| error.detail, str::to_owned);
        assert!(refused.contains("us-iso-east-1 is in a partition of AWS that is not supported"), "{refused}");
        assert!(is_supported_partition("aws-eusc") && !is_supported_partition("aws-iso"));
    }
}
