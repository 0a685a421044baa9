//! Addresses of the internet protocol, and ranges of them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use super::super::value::{CelValue, CidrRange};
use super::super::{CostMeter, ExpressionError};
use super::CallResult;

/// A longer text is no address.
const TEXT_BYTES_MAX: usize = 64;

/// An address without a zone. An IPv4 address within an IPv6 address can be written in hexadecimal, and becomes IPv4.
fn parse_address(text: &str) -> Option<IpAddr> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let within_ipv6 = text.contains(':') && text.contains('.');
    let address: IpAddr = text.parse().ok().filter(|_| !within_ipv6)?;
    Some(address.to_canonical())
}

fn parse_range(text: &str) -> Option<CidrRange> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let (address, length) = text.split_once('/')?;
    let mapped = address.parse::<Ipv6Addr>().is_ok_and(|address| address.to_ipv4_mapped().is_some());
    let address = parse_address(address).filter(|_| !mapped)?;
    let is_number = length.bytes().all(|digit| digit.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
    let prefix_length: u8 = length.parse().ok().filter(|_| is_number)?;
    (prefix_length <= bit_count(address)).then_some(CidrRange { address, prefix_length })
}

fn bit_count(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn expect_address(text: &str) -> Result<IpAddr, ExpressionError> {
    parse_address(text).ok_or_else(|| {
        ExpressionError::failed("The text is not an IPv4 or IPv6 address (without a zone, and no IPv4 within IPv6).")
    })
}

fn expect_range(text: &str) -> Result<CidrRange, ExpressionError> {
    parse_range(text).ok_or_else(|| ExpressionError::failed("The text is not a range of addresses such as 10.0.0.0/8."))
}

impl CidrRange {
    /// The range with its first address.
    fn to_masked(self) -> CidrRange {
        let host_bits = u32::from(bit_count(self.address) - self.prefix_length);
        let network = to_bits(self.address).checked_shr(host_bits).unwrap_or(0).checked_shl(host_bits).unwrap_or(0);
        let address = match self.address {
            IpAddr::V4(_) => IpAddr::from(u32::try_from(network).unwrap_or(0).to_be_bytes()),
            IpAddr::V6(_) => IpAddr::from(network.to_be_bytes()),
        };
        CidrRange { address, ..self }
    }

    fn contains(self, other: CidrRange) -> bool {
        let same_family = self.address.is_ipv4() == other.address.is_ipv4();
        let widened = CidrRange { prefix_length: self.prefix_length, ..other };
        same_family && self.prefix_length <= other.prefix_length && self.to_masked() == widened.to_masked()
    }
}

impl fmt::Display for CidrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_length)
    }
}

/// A range to try literals with.
pub fn any_range<'a>() -> CelValue<'a> {
    CelValue::Cidr(Rc::new(CidrRange { address: IpAddr::from([0, 0, 0, 0]), prefix_length: 0 }))
}

pub fn ip<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(TEXT_BYTES_MAX)?;
    Ok(Some(CelValue::Ip(Rc::new(expect_address(text)?))))
}

pub fn cidr<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(TEXT_BYTES_MAX)?;
    Ok(Some(CelValue::Cidr(Rc::new(expect_range(text)?))))
}

pub fn is_ip<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(TEXT_BYTES_MAX)?;
    Ok(Some(CelValue::Bool(parse_address(text).is_some())))
}

pub fn is_cidr<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(TEXT_BYTES_MAX)?;
    Ok(Some(CelValue::Bool(parse_range(text).is_some())))
}

pub fn is_canonical<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(TEXT_BYTES_MAX)?;
    Ok(Some(CelValue::Bool(expect_address(text)?.to_string() == **text)))
}

pub fn address_of<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Cidr(range)] = arguments else { return Ok(None) };
    meter.charge_bytes(TEXT_BYTES_MAX)?;
    Ok(Some(CelValue::Ip(Rc::new(range.address))))
}

pub fn masked<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Cidr(range)] = arguments else { return Ok(None) };
    meter.charge_bytes(TEXT_BYTES_MAX)?;
    Ok(Some(CelValue::Cidr(Rc::new(range.to_masked()))))
}

pub fn prefix_length<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    let [CelValue::Cidr(range)] = arguments else { return None };
    Some(CelValue::Int(i64::from(range.prefix_length)))
}

pub fn contains_ip<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    meter.charge_bytes(TEXT_BYTES_MAX)?;
    let (range, address) = match arguments {
        [CelValue::Cidr(range), CelValue::Ip(address)] => (range, **address),
        [CelValue::Cidr(range), CelValue::Text(text)] => (range, expect_address(text)?),
        _ => return Ok(None),
    };
    Ok(Some(CelValue::Bool(range.contains(CidrRange { address, prefix_length: bit_count(address) }))))
}

pub fn contains_cidr<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    meter.charge_bytes(TEXT_BYTES_MAX)?;
    let (range, other) = match arguments {
        [CelValue::Cidr(range), CelValue::Cidr(other)] => (range, **other),
        [CelValue::Cidr(range), CelValue::Text(text)] => (range, expect_range(text)?),
        _ => return Ok(None),
    };
    Ok(Some(CelValue::Bool(range.contains(other))))
}

pub fn family<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    let [CelValue::Ip(address)] = arguments else { return None };
    Some(CelValue::Int(if address.is_ipv4() { 4 } else { 6 }))
}

fn ask_address<'a>(arguments: &[CelValue<'a>], ask: fn(IpAddr) -> bool) -> Option<CelValue<'a>> {
    let [CelValue::Ip(address)] = arguments else { return None };
    Some(CelValue::Bool(ask(**address)))
}

pub fn is_loopback<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    ask_address(arguments, |address| address.is_loopback())
}

pub fn is_unspecified<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    ask_address(arguments, |address| address.is_unspecified())
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

pub fn is_link_local_unicast<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    ask_address(arguments, is_link_local)
}

pub fn is_link_local_multicast<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    ask_address(arguments, |address| match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xFF0F == 0xFF02,
    })
}

/// As Go has it: private addresses are global, too.
pub fn is_global_unicast<'a>(arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    ask_address(arguments, |address| {
        let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        !is_broadcast
            && !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast()
            && !is_link_local(address)
    })
}
