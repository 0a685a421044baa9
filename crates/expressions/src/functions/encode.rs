//! Base64, and percent-encoding.

use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, Engine as _};

use super::super::value::CelValue;
use super::super::{CostMeter, ExpressionError};
use super::CallResult;

/// Texts from elsewhere may lack the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub fn base64_encode<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Bytes(bytes)] = arguments else { return Ok(None) };
    meter.charge_bytes(bytes.len().saturating_mul(2))?;
    Ok(Some(CelValue::shared_text(BASE64.encode(&**bytes))))
}

pub fn base64_decode<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(text.len().saturating_mul(2))?;
    let bytes = BASE64.decode(text.as_bytes()).map_err(|_| ExpressionError::failed("The text is not base64."))?;
    Ok(Some(CelValue::Bytes(bytes.into())))
}

/// Percent-encodes all but the unreserved characters of RFC 3986.
pub fn url_encode<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    // A byte becomes up to three.
    meter.charge_bytes(text.len().saturating_mul(3))?;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            super::format::push_hexadecimal(&mut encoded, byte, true);
        }
    }
    Ok(Some(CelValue::shared_text(encoded)))
}
