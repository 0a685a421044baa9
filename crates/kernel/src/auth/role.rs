//! Roles of users, and the scopes of each.

use serde::Serialize;

use super::scope::Scopes;
use crate::base::StringEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything in the tenant.
    Admin,
    /// The daily work: no keys, webhooks, audit trail, and no change to users, cloud providers or backup configuration.
    Technician,
    /// The reads of a technician, but for users.
    Viewer,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Admin, Role::Technician, Role::Viewer];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Technician => "technician",
            Role::Viewer => "viewer",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Role::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// The scopes of a session of this role.
    pub fn granted_scopes(self, platform_operator: bool) -> Scopes {
        let words: &[&str] = match self {
            Role::Admin => &["*"],
            Role::Technician => &[
                "organizations:*",
                // To assign work.
                "users:read",
                "tickets:*",
                "workflows:*",
                "search:read",
                "inventory:read",
                "cloud:read",
                "backup:read",
                "analytics:read",
            ],
            Role::Viewer => &[
                "organizations:read",
                "tickets:read",
                "workflows:read",
                "search:read",
                "inventory:read",
                "cloud:read",
                "backup:read",
                "analytics:read",
            ],
        };
        let platform: &[&str] = if platform_operator { &["platform:read"] } else { &[] };
        Scopes::parse(words.iter().chain(platform).copied()).unwrap_or_default()
    }
}

/// Bodies and queries parse a role like any other word.
impl StringEnum for Role {
    const ALL: &'static [Self] = &Role::ALL;

    fn as_str(self) -> &'static str {
        Role::as_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_holds_known_scopes() {
        for role in Role::ALL {
            assert!(!role.granted_scopes(true).granted_words().is_empty(), "{}", role.as_str());
        }
    }
}
