//! An operation of the OpenAPI document: a handler with the rules that its first argument names.

use axum::handler::Handler;
use utoipa::openapi::path::{Operation as Described, PathItem};
use utoipa_axum::router::UtoipaMethodRouter;

use super::access::Access;
use super::app::SharedApp;
use super::custom_credential::{CredentialHolder, CustomCredential};
use super::rules::{Route, Rules};

/// Made by [`operations!`](crate::operations).
pub struct Operation {
    pub(super) rules: Rules,
    pub(super) routes: UtoipaMethodRouter<SharedApp>,
}

/// Operations on a tenant's data, for `Api::add_tenant_routes`: `operations!(routes::list, routes::create)`.
#[macro_export]
macro_rules! operations {
    ($($($part:ident)::+),+ $(,)?) => {
        [$($crate::http::Operation::new($($part)::+, utoipa_axum::routes!($($part)::+))),+]
    };
}

impl Operation {
    /// The handler is passed beside its routes because `routes!` hides the types of its arguments. A handler that does not
    /// name its callers does not compile:
    ///
    /// ```compile_fail
    /// # use kernel::http::{Operation, QueryString};
    /// async fn list_open(query: QueryString<()>) {}
    /// let open = Operation::new(list_open, Default::default());
    /// ```
    ///
    /// ```
    /// # use kernel::auth::Scope;
    /// # use kernel::http::{Access, Operation, QueryString, RatePolicy, Rules};
    /// kernel::rules! { Reading = Rules::new(RatePolicy::Read, &[Scope::TicketsRead]); }
    /// async fn list_guarded(caller: Access<Reading>, query: QueryString<()>) {}
    /// let guarded = Operation::new(list_guarded, Default::default());
    /// ```
    pub fn new<H, T>(_: H, routes: UtoipaMethodRouter<SharedApp>) -> Self
    where
        H: Handler<T, SharedApp>,
        T: Arguments<First: TenantDoor>,
    {
        Operation { rules: <T::First as TenantDoor>::RULES, routes }
    }

    /// Its entries in the document: one for each method that the handler serves.
    pub(super) fn described_operations(&mut self) -> impl Iterator<Item = &mut Described> {
        self.routes.1.paths.values_mut().flat_map(operations_of).map(|(_, operation)| operation)
    }
}

/// The operations of a path, with their methods.
pub(super) fn operations_of(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Described)> {
    let PathItem { get, post, put, patch, delete, .. } = item;
    let all = [("get", get), ("post", post), ("put", put), ("patch", patch), ("delete", delete)];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// The first argument of a handler of a tenant's route.
#[diagnostic::on_unimplemented(
    message = "this handler does not say who may call it",
    note = "its first argument must be `caller: Access<R>`, where `kernel::rules!` declares `R`"
)]
pub trait TenantDoor {
    const RULES: Rules;
}

impl<R: Route> TenantDoor for Access<R> {
    const RULES: Rules = R::RULES;
}

/// The first argument of a handler of an internal route: a custom credential, or the credentials of a tenant's route.
#[diagnostic::on_unimplemented(
    message = "this handler does not say who may call it",
    note = "its first argument must be `CredentialHolder<C, R>` or `Access<R>`, where `kernel::rules!` declares `R`"
)]
pub trait InternalDoor {}

impl<C: CustomCredential, R: Route> InternalDoor for CredentialHolder<C, R> {}
impl<R: Route> InternalDoor for Access<R> {}

/// The arguments of a handler in axum's form: a marker type, then the types of the arguments.
#[diagnostic::on_unimplemented(
    message = "this handler does not say who may call it",
    note = "its first argument must be `caller: Access<R>`, where `kernel::rules!` declares `R`"
)]
pub trait Arguments {
    type First;
}

macro_rules! arguments {
    ($($($more:ident)*;)*) => {$(
        impl<Mark, First, $($more),*> Arguments for (Mark, First, $($more),*) {
            type First = First;
        }
    )*};
}

arguments! {
    ;
    B;
    B C;
    B C D;
    B C D E;
    B C D E F;
    B C D E F G;
}
