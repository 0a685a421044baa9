//! Parsing of request bodies of users.

use kernel::auth::Role;
use kernel::base::Label;
use kernel::http::{BodyFields, FromBody};
use utoipa::ToSchema;

use super::{UserStatus, fold_email};

/// What making or replacing a user takes.
#[derive(Debug, ToSchema)]
#[schema(as = UserInput, example = json!({"email": "ann@acme.test", "name": "Ann", "role": "technician"}))]
#[serde(deny_unknown_fields)]
pub struct UserInput {
    /// Unique in the tenant, also among those who are disabled. Kept in small letters. At most 64 bytes before the `@`, a host name
    /// behind it, and nothing in it that cannot be seen.
    #[schema(min_length = 3, max_length = 254, pattern = "^\\s*[^\\s@]{1,64}@[^\\s@.]+(\\.[^\\s@.]+)*\\s*$")]
    pub email: String,
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = "\\S")]
    pub name: Label,
    /// You cannot give a role with scopes that you do not hold.
    pub role: Role,
    /// POST: `active` when omitted. PUT: it stays when omitted.
    #[schema(nullable = false)]
    pub status: Option<UserStatus>,
}

impl FromBody for UserInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let email = fields.read_required("email", |field| field.read_parsed("invalid_email", fold_email));
        let name = fields.read_required("name", |field| field.read_parsed("invalid_name", Label::parse));
        let role = fields.read_required("role", |field| field.read_enum());
        let status = fields.read_optional("status", |field| field.read_enum());
        Some(UserInput { email: email?, name: name?, role: role?, status: status? })
    }
}
