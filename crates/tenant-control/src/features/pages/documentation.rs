//! `/documentation/`: what there is to read, and where.

use askama::Template;
use kernel::base::Result;

use super::page::Page;

#[derive(Template)]
#[template(path = "documentation.html")]
struct Documentation {
    here: &'static str,
}

pub async fn documentation() -> Result<Page> {
    Page::new(&Documentation { here: "/documentation/" })
}
