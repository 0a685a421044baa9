//! Parsing of request bodies of users.

use kernel::auth::Role;
use kernel::base::Label;
use kernel::http::{Fields, FromBody};
use utoipa::ToSchema;

use super::{Status, fold_email};

/// What making or replacing a user takes.
#[derive(Debug, ToSchema)]
#[schema(as = UserInput, example = json!({"email": "ann@acme.test", "name": "Ann", "role": "technician"}))]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Unique in the tenant, also among those who are disabled. Kept in small letters. At most 64 bytes before the `@`, a host name
    /// behind it, and nothing in it that cannot be seen.
    #[schema(min_length = 3, max_length = 254, pattern = "^\\s*[^\\s@]{1,64}@[^\\s@.]+(\\.[^\\s@.]+)*\\s*$")]
    pub email: String,
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = "\\S")]
    pub name: Label,
    /// Nobody gives a role that holds scopes they do not hold themselves.
    pub role: Role,
    /// POST: `active` when omitted. PUT: it stays when omitted.
    #[schema(nullable = false)]
    pub status: Option<Status>,
}

impl FromBody for Input {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let email = fields.required("email", |field| field.parsed("invalid_email", fold_email));
        let name = fields.required("name", |field| field.parsed("invalid_name", Label::parse));
        let role = fields.required("role", |field| field.word());
        let status = fields.optional("status", |field| field.word());
        Some(Input { email: email?, name: name?, role: role?, status: status? })
    }
}
