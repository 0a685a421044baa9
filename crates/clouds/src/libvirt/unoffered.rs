//! Answers for providers of a kind that this server does not offer any more.

use std::pin::Pin;

use kernel::base::Timestamp;

use crate::{
    AccessCheck, CatalogItem, CatalogKind, CloudAdapter, CloudError, CloudErrorKind, CloudFuture, CreatedMachine,
    Machine, MachinePage, MachineSpec, Verification,
};

/// Every call fails, and so nothing is taken for gone.
pub struct UnofferedAdapter;

impl UnofferedAdapter {
    fn refuse<T>() -> Result<T, CloudError> {
        let detail =
            "This server does not offer libvirt: it is not built in, or the operator has set no address for it.";
        Err(CloudError::new(CloudErrorKind::Unavailable, detail))
    }

    fn refuse_call<'a, T: Send + 'a>() -> CloudFuture<'a, T> {
        Box::pin(std::future::ready(Self::refuse()))
    }
}

impl CloudAdapter for UnofferedAdapter {
    fn verify<'a>(
        &'a self,
        _regions: &'a [String],
        _now: Timestamp,
    ) -> Pin<Box<dyn Future<Output = Verification> + Send + 'a>> {
        let failure = Self::refuse::<()>().err();
        let check = AccessCheck::new("identity", "connect", "call");
        let check = match &failure {
            Some(failure) => check.failed(failure, ""),
            None => check,
        };
        Box::pin(std::future::ready(Verification { identity: None, checks: vec![check], failure }))
    }

    fn list_catalog<'a>(
        &'a self,
        _kind: CatalogKind,
        _region: Option<&'a str>,
        _now: Timestamp,
    ) -> CloudFuture<'a, Vec<CatalogItem>> {
        Self::refuse_call()
    }

    fn lists_all_regions(&self) -> bool {
        false
    }

    fn list_machines<'a>(
        &'a self,
        _region: Option<&'a str>,
        _cursor: Option<&'a str>,
        _now: Timestamp,
    ) -> CloudFuture<'a, MachinePage> {
        Self::refuse_call()
    }

    fn find_machine<'a>(
        &'a self,
        _region: &'a str,
        _external_id: &'a str,
        _now: Timestamp,
    ) -> CloudFuture<'a, Option<Machine>> {
        Self::refuse_call()
    }

    fn find_by_operation<'a>(
        &'a self,
        _region: &'a str,
        _operation_id: &'a str,
        _now: Timestamp,
    ) -> CloudFuture<'a, Vec<Machine>> {
        Self::refuse_call()
    }

    fn create_machine<'a>(&'a self, _spec: &'a MachineSpec, _now: Timestamp) -> CloudFuture<'a, CreatedMachine> {
        Self::refuse_call()
    }

    fn creates_once(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessResult;
    use crate::test_support::{failure, now, run};

    #[test]
    fn a_provider_that_is_left_over_is_an_error_with_the_reason() {
        let verified = run(UnofferedAdapter.verify(&[], now()));
        assert_eq!((verified.identity, verified.checks[0].result), (None, AccessResult::Error));
        assert!(verified.failure.is_some_and(|failure| failure.detail.contains("does not offer libvirt")));
        let listed = failure(run(UnofferedAdapter.list_machines(Some("default"), None, now())));
        assert_eq!(listed.kind, CloudErrorKind::Unavailable);
    }
}
