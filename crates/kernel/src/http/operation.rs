//! An operation of the document: a handler together with the rules that its first argument names.

use axum::handler::Handler;
use utoipa::openapi::path::{Operation as Described, PathItem};
use utoipa_axum::router::UtoipaMethodRouter;

use super::access::Access;
use super::app::Shared;
use super::pass::{Holder, Pass};
use super::rules::{Route, Rules};

/// Made by [`operations!`](crate::operations).
pub struct Operation {
    pub(super) rules: Rules,
    pub(super) routes: UtoipaMethodRouter<Shared>,
}

/// Operations on a tenant's data, for `Api::tenant`: `operations!(routes::list, routes::create)`.
#[macro_export]
macro_rules! operations {
    ($($($part:ident)::+),+ $(,)?) => {
        [$($crate::http::Operation::new($($part)::+, utoipa_axum::routes!($($part)::+))),+]
    };
}

impl Operation {
    /// The handler is named twice because `routes!` hides what its arguments are. One that does not say who may call
    /// does not compile:
    ///
    /// ```compile_fail
    /// # use kernel::http::{Operation, Query};
    /// async fn open(query: Query<()>) {}
    /// let open = Operation::new(open, Default::default());
    /// ```
    ///
    /// ```
    /// # use kernel::auth::Scope;
    /// # use kernel::http::{Access, Operation, Policy, Query, Rules};
    /// kernel::rules! { Reading = Rules::new(Policy::Read, &[Scope::TicketsRead]); }
    /// async fn guarded(caller: Access<Reading>, query: Query<()>) {}
    /// let guarded = Operation::new(guarded, Default::default());
    /// ```
    pub fn new<H, T>(_: H, routes: UtoipaMethodRouter<Shared>) -> Self
    where
        H: Handler<T, Shared>,
        T: Arguments<First: TenantDoor>,
    {
        Operation { rules: <T::First as TenantDoor>::RULES, routes }
    }

    /// As the document shows it: one, or one for each method that the handler serves.
    pub(super) fn described(&mut self) -> impl Iterator<Item = &mut Described> {
        self.routes.1.paths.values_mut().flat_map(operations_of).map(|(_, operation)| operation)
    }
}

/// The operations of a path, with their methods.
pub(super) fn operations_of(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Described)> {
    let PathItem { get, post, put, patch, delete, .. } = item;
    let all = [("get", get), ("post", post), ("put", put), ("patch", patch), ("delete", delete)];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// What lets a caller into a tenant's route.
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

/// What lets a caller into an internal route: its pass, or the credentials of every tenant's route.
#[diagnostic::on_unimplemented(
    message = "this handler does not say who may call it",
    note = "its first argument must be `Holder<P, R>` or `Access<R>`, where `kernel::rules!` declares `R`"
)]
pub trait InternalDoor {}

impl<P: Pass, R: Route> InternalDoor for Holder<P, R> {}
impl<R: Route> InternalDoor for Access<R> {}

/// The arguments of a handler, as axum names them: a mark of its own, then their types.
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
