//! The descendants of a key: the keys it has made, at any depth. Rights that are taken from the maker are taken from its
//! descendants, so that a caller cannot keep lost rights in a key made earlier. Only a person or an ancestor changes a key.

pub mod store;

use ipnet::IpNet;
use kernel::audit::AuditChanges;
use kernel::auth::Scopes;
use kernel::base::{Error, Result, Timestamp};

use super::networks::{intersect_networks, is_within};

/// The bounds of a key: its scopes, networks and expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBounds {
    pub scopes: Scopes,
    pub networks: Vec<IpNet>,
    pub expires_at: Timestamp,
}

impl KeyBounds {
    /// Whether a change from `old` to these bounds takes anything away.
    pub fn is_narrower_than(&self, old: &KeyBounds) -> bool {
        self.has_lost_scopes(old) || self.has_lost_networks(old) || self.expires_at < old.expires_at
    }

    fn has_lost_scopes(&self, old: &KeyBounds) -> bool {
        self.scopes.find_missing(&old.scopes).is_some()
    }

    fn has_lost_networks(&self, old: &KeyBounds) -> bool {
        !is_within(&old.networks, &self.networks)
    }

    /// These bounds after an ancestor changed from `old` to `new`; `None` when nothing is left. If the ancestor lost scopes,
    /// only scopes that it still has are left, and likewise for networks. If it lost none, all are left, even beyond the
    /// ancestor's own: a person has granted those.
    pub fn narrow_with_ancestor(&self, old: &KeyBounds, new: &KeyBounds) -> Option<KeyBounds> {
        let scopes = if new.has_lost_scopes(old) { self.scopes.intersect(&new.scopes) } else { self.scopes.clone() };
        let networks = if new.has_lost_networks(old) {
            intersect_networks(&self.networks, &new.networks)?
        } else {
            self.networks.clone()
        };
        (!scopes.is_empty()).then_some(KeyBounds { scopes, networks, expires_at: self.expires_at.min(new.expires_at) })
    }

    /// The differences from these bounds to new ones, for the audit entry.
    pub fn list_changes(&self, new: &KeyBounds) -> AuditChanges {
        let texts = |networks: &[IpNet]| networks.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut changes = AuditChanges::default();
        changes.add_if_changed("scopes", self.scopes.granted_words().to_vec(), new.scopes.granted_words().to_vec());
        changes.add_if_changed("allowed_cidrs", texts(&self.networks), texts(&new.networks));
        changes.add_if_changed("expires_at", self.expires_at.to_string(), new.expires_at.to_string());
        changes
    }

    /// Scopes and networks as they are stored.
    pub fn to_json_texts(&self) -> Result<(String, String)> {
        let scopes = serde_json::to_string(self.scopes.granted_words()).map_err(Error::internal)?;
        Ok((scopes, serde_json::to_string(&self.networks).map_err(Error::internal)?))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use kernel::base::parse_network;

    use super::*;

    fn bounds(scopes: &[&str], networks: &[&str], expires_at: i64) -> KeyBounds {
        KeyBounds {
            scopes: Scopes::parse(scopes.iter().copied()).unwrap(),
            networks: networks.iter().map(|text| parse_network(text).unwrap()).collect(),
            expires_at: Timestamp::from_millis(expires_at),
        }
    }

    #[test]
    fn what_is_left_lies_within_what_the_maker_keeps() {
        let old = bounds(&["tickets:*", "cloud:read"], &["10.0.0.0/8"], 100);
        let made = bounds(&["tickets:*", "audit:read"], &[], 90);
        let narrowed = |new: &KeyBounds| made.narrow_with_ancestor(&old, new);
        // Wider or the same in everything: nothing is taken away.
        assert_eq!(narrowed(&bounds(&["*"], &[], 200)).as_ref(), Some(&made));
        assert_eq!(narrowed(&old).as_ref(), Some(&made));
        assert!(!bounds(&["*"], &[], 200).is_narrower_than(&old) && !old.is_narrower_than(&old));
        for (new, left) in [
            (bounds(&["tickets:read"], &["10.0.0.0/8"], 100), Some(bounds(&["tickets:read"], &[], 90))),
            (bounds(&["cloud:*"], &["10.0.0.0/8"], 100), None),
            (bounds(&["*"], &["10.1.0.0/16"], 100), Some(bounds(&["tickets:*", "audit:read"], &["10.1.0.0/16"], 90))),
            (bounds(&["*"], &["10.0.0.0/8"], 80), Some(bounds(&["tickets:*", "audit:read"], &[], 80))),
        ] {
            assert!(new.is_narrower_than(&old), "{new:?}");
            assert_eq!(narrowed(&new), left, "{new:?}");
        }
    }

    #[test]
    fn a_key_of_which_no_network_is_left_is_nothing() {
        let (old, new) = (bounds(&["*"], &["10.0.0.0/8"], 100), bounds(&["*"], &["10.1.0.0/16"], 100));
        assert_eq!(bounds(&["*"], &["10.2.0.0/16"], 100).narrow_with_ancestor(&old, &new), None);
        assert!(bounds(&["*"], &["10.1.2.0/24"], 100).narrow_with_ancestor(&old, &new).is_some());
    }
}
