//! The parameters of statements: values that both engines can bind.

use tokio_postgres::types::ToSql;

/// A value that both engines can bind: every type that implements both drivers' traits.
pub trait Param: rusqlite::ToSql + ToSql + Sync {}

impl<T: rusqlite::ToSql + ToSql + Sync> Param for T {}

/// The arguments of a statement; see [`args!`](crate::args).
pub type Args<'a> = &'a [&'a dyn Param];

/// The arguments of a statement: `args![id, name, now.at]`.
///
/// On a tenant's handle they are `$2`, `$3`, …, because the handle itself binds the tenant as `$1`; on the system's
/// handle they start at `$1`.
#[macro_export]
macro_rules! args {
    () => { &[] as $crate::store::Args<'_> };
    ($($value:expr),+ $(,)?) => { &[$(&$value as &dyn $crate::store::Param),+] as $crate::store::Args<'_> };
}

/// Names SQL texts, and lists them so that a test can prepare each on both engines: nothing else checks SQL before
/// it runs.
///
/// ```
/// kernel::statements! {
///     /// Finds a tenant by its slug.
///     FIND_BY_SLUG = "SELECT id FROM tenants WHERE slug = $1";
/// }
/// assert_eq!(STATEMENTS, &[("FIND_BY_SLUG", FIND_BY_SLUG)]);
/// ```
#[macro_export]
macro_rules! statements {
    ($($(#[$meta:meta])* $name:ident = $sql:expr;)*) => {
        $($(#[$meta])* pub const $name: &str = $sql;)*
        /// Every statement of this module by its name.
        pub const STATEMENTS: &[(&str, &str)] = &[$((stringify!($name), $sql)),*];
    };
}
