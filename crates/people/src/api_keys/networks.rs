//! Lists of networks that keys are restricted to: whether one is within another, and their intersection.
//!
//! An empty list means "anywhere". IPv4 and IPv6 networks never overlap: a caller's address is one or the other, and
//! `parse_network` has turned IPv4-mapped IPv6 networks into IPv4.

use ipnet::IpNet;
use kernel::auth::Rights;
use kernel::base::{Code, Error, FieldError, Result};

use super::ALLOWED_CIDRS_MAX;

/// Whether every address that `inner` allows is also allowed by `outer`.
pub fn is_within(inner: &[IpNet], outer: &[IpNet]) -> bool {
    let outer = IpNet::aggregate(&outer.to_vec());
    outer.is_empty() || (!inner.is_empty() && inner.iter().all(|network| covers_network(&outer, network)))
}

/// The networks that both lists allow, each as one of the lists has it; `None` when they have no address in common.
///
/// If there are more than a key may have, neighbours are merged and the rest is left out: a key never gets wider by this.
pub fn intersect_networks(one: &[IpNet], other: &[IpNet]) -> Option<Vec<IpNet>> {
    if one.is_empty() || other.is_empty() {
        return Some([one, other].concat());
    }
    let (one_merged, other_merged) = (IpNet::aggregate(&one.to_vec()), IpNet::aggregate(&other.to_vec()));
    // Two networks are disjoint, or one is within the other.
    let mut shared: Vec<IpNet> = one.iter().filter(|network| covers_network(&other_merged, network)).copied().collect();
    let shared_merged = IpNet::aggregate(&shared);
    let is_missing =
        |network: &&IpNet| covers_network(&one_merged, network) && !covers_network(&shared_merged, network);
    shared.extend(other.iter().filter(is_missing));
    if shared.len() > ALLOWED_CIDRS_MAX {
        shared = IpNet::aggregate(&shared);
        shared.truncate(ALLOWED_CIDRS_MAX);
    }
    (!shared.is_empty()).then_some(shared)
}

/// Whether one of these networks contains all of `inner`.
fn covers_network(networks: &[IpNet], inner: &IpNet) -> bool {
    networks.iter().any(|network| network.contains(inner))
}

/// Which of a key's stored networks a caller with these rights may leave it: never wider than the caller's own key.
pub fn keep_networks(rights: &Rights, stored: &[IpNet]) -> Result<Vec<IpNet>> {
    let detail = "none of the key's networks is within those of your own key: name some that are";
    intersect_networks(stored, &rights.allowed_cidrs).ok_or_else(|| refuse_outside(detail))
}

/// Checks requested networks against the caller's own; the error names each one that is outside.
pub fn check_networks(rights: &Rights, requested: Vec<IpNet>) -> Result<Vec<IpNet>> {
    let own = &rights.allowed_cidrs;
    if own.is_empty() {
        return Ok(requested);
    }
    if requested.is_empty() {
        return Err(refuse_outside("an empty list means anywhere, and your own key has a list"));
    }
    let own = IpNet::aggregate(own);
    let errors = requested.iter().enumerate().filter(|(_, network)| !covers_network(&own, network));
    let errors: Vec<FieldError> = errors
        .map(|(index, network)| FieldError {
            pointer: format!("/allowed_cidrs/{index}"),
            code: OUTSIDE,
            detail: format!("{network} is not within the networks of your own key"),
        })
        .collect();
    if errors.is_empty() { Ok(requested) } else { Err(Error::invalid_fields(errors)) }
}

const OUTSIDE: &str = "outside_own_networks";

fn refuse_outside(detail: &str) -> Error {
    Error::invalid("/allowed_cidrs", OUTSIDE, detail)
}

/// A rotation reveals the new key to the caller, so it must not work from networks that the caller's own key does not: a
/// person may have opened a key to more networks than its maker has.
pub fn check_takeover(rights: &Rights, theirs: &[IpNet]) -> Result<()> {
    if is_within(theirs, &rights.allowed_cidrs) {
        return Ok(());
    }
    Err(Error::new(Code::AddressNotAllowed, "The key works from networks that your own key may not be used from."))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use kernel::base::parse_network;

    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| parse_network(text).unwrap()).collect()
    }

    #[test]
    fn an_empty_list_is_anywhere_and_neighbours_count_as_one() {
        for (inner, outer, expected) in [
            (vec![], vec![], true),
            (vec!["10.0.0.0/8"], vec![], true),
            (vec![], vec!["10.0.0.0/8"], false),
            (vec!["10.1.0.0/16", "10.2.3.4"], vec!["10.0.0.0/8"], true),
            (vec!["10.0.0.0/8", "11.0.0.0/8"], vec!["10.0.0.0/8"], false),
            (vec!["10.0.0.0/8"], vec!["10.128.0.0/9", "10.0.0.0/9"], true),
            (vec!["10.0.0.0/8"], vec!["10.128.0.0/9", "10.0.0.0/10"], false),
            (vec!["2001:db8:1::/48"], vec!["10.0.0.0/8", "2001:db8::/32"], true),
            (vec!["10.0.0.0/8"], vec!["::/0"], false),
        ] {
            assert_eq!(is_within(&networks(&inner), &networks(&outer)), expected, "{inner:?} in {outer:?}");
        }
    }

    #[test]
    fn what_two_lists_share_is_the_narrower_of_each_pair() {
        for (one, other, shared) in [
            (vec!["10.0.0.0/8"], vec!["10.1.0.0/16"], Some(vec!["10.1.0.0/16"])),
            (vec!["10.1.2.0/24"], vec!["10.1.0.0/16"], Some(vec!["10.1.2.0/24"])),
            (vec!["0.0.0.0/0"], vec!["10.1.0.0/16", "10.3.0.0/16"], Some(vec!["10.1.0.0/16", "10.3.0.0/16"])),
            (vec!["0.0.0.0/0", "::/0"], vec!["10.1.0.0/16"], Some(vec!["10.1.0.0/16"])),
            (vec![], vec!["10.1.0.0/16"], Some(vec!["10.1.0.0/16"])),
            (vec!["10.1.0.0/16"], vec![], Some(vec!["10.1.0.0/16"])),
            (vec![], vec![], Some(vec![])),
            (vec!["10.2.0.0/16"], vec!["10.1.0.0/16"], None),
            (vec!["::/0"], vec!["10.1.0.0/16"], None),
            (vec!["2001:db8::/32", "10.0.0.0/8"], vec!["2001:db8:7::/48"], Some(vec!["2001:db8:7::/48"])),
            // Neighbours that together are one network of the other list.
            (vec!["10.0.0.0/8"], vec!["10.0.0.0/9", "10.128.0.0/9"], Some(vec!["10.0.0.0/8"])),
            (vec!["10.0.0.0/9", "10.128.0.0/9"], vec!["10.0.0.0/8"], Some(vec!["10.0.0.0/9", "10.128.0.0/9"])),
            (vec!["10.1.0.0/16"], vec!["10.1.0.0/16"], Some(vec!["10.1.0.0/16"])),
        ] {
            let found = intersect_networks(&networks(&one), &networks(&other));
            assert_eq!(found, shared.map(|shared| networks(&shared)), "{one:?} and {other:?}");
        }
    }

    #[test]
    fn what_is_shared_has_a_bound_and_never_more_than_both() {
        let small: Vec<IpNet> = (0..49).map(|n| parse_network(&format!("10.{}.0.0/16", 2 * n)).unwrap()).collect();
        let one = [small, networks(&["172.16.0.0/12"])].concat();
        let parts: Vec<IpNet> = (0..49).map(|n| parse_network(&format!("172.16.{}.0/24", 2 * n)).unwrap()).collect();
        let other = [networks(&["10.0.0.0/8"]), parts].concat();
        let shared = intersect_networks(&one, &other).unwrap();
        assert_eq!(shared.len(), ALLOWED_CIDRS_MAX);
        assert!(is_within(&shared, &one) && is_within(&shared, &other));
    }
}
