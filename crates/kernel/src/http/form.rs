//! HTML forms: a few short fields, URL-encoded as browsers send them.

use std::convert::Infallible;

use axum::extract::{FromRequest, Request};

use super::app::SharedApp;
use super::params::decode_component;
use super::raw::Raw;
use super::rules::BodyRules;
use crate::base::Result;

/// Enough for an e-mail address and the longest path of ours, with every byte percent-encoded.
const FORM_BYTES_MAX: usize = 8 * 1024;

/// The body rules of all forms, which the layer adds to the request.
pub(super) const FORM_RULES: BodyRules =
    BodyRules { bytes_max: FORM_BYTES_MAX, media_types: &["application/x-www-form-urlencoded"] };

/// A form that has not been read yet. The last argument of a handler of [`Api::add_form`](super::Api::add_form).
pub struct Form(Raw);

impl Form {
    /// Reads the form: 415 and 413. The handler validates the fields.
    pub async fn read_fields(self) -> Result<FormFields> {
        let bytes = self.0.read_body().await?.bytes;
        Ok(FormFields::parse(&String::from_utf8_lossy(&bytes)))
    }
}

impl FromRequest<SharedApp> for Form {
    type Rejection = Infallible;

    async fn from_request(request: Request, app: &SharedApp) -> Result<Self, Infallible> {
        Raw::from_request(request, app).await.map(Form)
    }
}

/// The fields of a form, or of the query of a page.
pub struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Badly encoded fields are dropped: the page then reports them as missing.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((decode_component(name)?, decode_component(value)?))
        });
        FormFields(pairs.collect())
    }

    /// The first field of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_browsers_write_them() {
        let fields = FormFields::parse(
            "email=ann%2Bx%40acme.test&redirect_to=%2Foverview&name=Ann+Lee&email=second&&bad=%zz&flag",
        );
        assert_eq!(fields.get("email"), Some("ann+x@acme.test"));
        assert_eq!(fields.get("redirect_to"), Some("/overview"));
        assert_eq!(fields.get("name"), Some("Ann Lee"));
        assert_eq!((fields.get("bad"), fields.get("flag"), fields.get("")), (None, None, None));
    }
}
