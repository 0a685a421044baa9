//! What libvirt's errors mean. Its own words are for the log of the operator: they name hosts, files and machines of others.

use virt::error::{Error, ErrorNumber};

use super::CLOUD;
use crate::error::RequestEffect;
use crate::{CloudError, CloudErrorKind};

/// Why there is no connection. Whatever it is, tenants can do nothing about it, not even about a refused login.
pub fn to_connect_error(error: &Error) -> CloudError {
    to_error(error, CloudErrorKind::Unavailable)
}

pub fn to_cloud_error(error: &Error, effect: RequestEffect) -> CloudError {
    to_error(error, classify(error.code(), effect))
}

fn to_error(error: &Error, kind: CloudErrorKind) -> CloudError {
    let code = format!("{:?}", error.code());
    tracing::warn!(code, error = error.message(), "libvirt call failed");
    let message = format!("the error is {code}, and the log of this server has the reason.");
    CloudError::from_cloud(CLOUD, kind, (&code, &message), &[])
}

fn classify(code: ErrorNumber, effect: RequestEffect) -> CloudErrorKind {
    match code {
        ErrorNumber::AccessDenied | ErrorNumber::OperationDenied => CloudErrorKind::Permission,
        ErrorNumber::NoDomain
        | ErrorNumber::NoStoragePool
        | ErrorNumber::NoStorageVolume
        | ErrorNumber::NoNetwork
        | ErrorNumber::NoDomainMetadata => CloudErrorKind::NotFound,
        ErrorNumber::XmlError
        | ErrorNumber::XmlDetail
        | ErrorNumber::XmlInvalidSchema
        | ErrorNumber::InvalidArg
        | ErrorNumber::ConfigUnsupported
        | ErrorNumber::ArgumentUnsupported
        | ErrorNumber::OperationUnsupported
        | ErrorNumber::NoSupport
        | ErrorNumber::CpuIncompatible => CloudErrorKind::Invalid,
        ErrorNumber::DomExist | ErrorNumber::StorageVolExist => CloudErrorKind::Conflict,
        ErrorNumber::NoMemory => CloudErrorKind::Capacity,
        // The connection is gone, or the host did not answer in time.
        ErrorNumber::Rpc
        | ErrorNumber::SystemError
        | ErrorNumber::GnutlsError
        | ErrorNumber::Ssh
        | ErrorNumber::Libssh
        | ErrorNumber::OperationTimeout
        | ErrorNumber::InvalidConn => effect.kind_when_lost(),
        _ => CloudErrorKind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_in_doubt_only_for_a_creation() {
        let kinds = |code| [RequestEffect::Read, RequestEffect::Create].map(|effect| classify(code, effect));
        assert_eq!(kinds(ErrorNumber::Rpc), [CloudErrorKind::Unavailable, CloudErrorKind::Ambiguous]);
        assert_eq!(kinds(ErrorNumber::NoDomain), [CloudErrorKind::NotFound; 2]);
        assert_eq!(kinds(ErrorNumber::OperationFailed), [CloudErrorKind::Unavailable; 2]);
    }
}
