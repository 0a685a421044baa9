//! The schemas of the two kinds of pages, made so that exactly one of them validates a response.

use std::borrow::Cow;

use kernel::http::ListPage;
use serde_json::json;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::{Event, EventType};

/// A page of the catalogue, which is never empty.
pub struct CataloguePage;

/// A page of the feed, which may be empty and always has a cursor.
pub struct FeedPage;

impl PartialSchema for CataloguePage {
    fn schema() -> RefOr<Schema> {
        edit_object_schema(<ListPage<EventType>>::schema(), |page| {
            if let Some(RefOr::T(Schema::Array(data))) = page.properties.get_mut("data") {
                data.min_items = Some(1);
            }
        })
    }
}

impl PartialSchema for FeedPage {
    fn schema() -> RefOr<Schema> {
        edit_object_schema(<ListPage<Event>>::schema(), |page| {
            let cursor = ObjectBuilder::new()
                .schema_type(Type::String)
                .description(Some("Give it back as `cursor` to go on from here, now or when there is more."));
            page.properties.insert("next_cursor".to_owned(), cursor.into());
            for example in &mut page.examples {
                example["next_cursor"] = json!("WzQyLDE3NjMxOTM2MDAwMDBd.Qm9vc3RlZA");
            }
        })
    }
}

fn edit_object_schema(page: RefOr<Schema>, change: impl FnOnce(&mut Object)) -> RefOr<Schema> {
    match page {
        RefOr::T(Schema::Object(mut page)) => {
            change(&mut page);
            RefOr::T(Schema::Object(page))
        }
        other => other,
    }
}

impl ToSchema for CataloguePage {
    fn name() -> Cow<'static, str> {
        <ListPage<EventType>>::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        <ListPage<EventType>>::schemas(schemas);
    }
}

impl ToSchema for FeedPage {
    fn name() -> Cow<'static, str> {
        <ListPage<Event>>::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        <ListPage<Event>>::schemas(schemas);
    }
}
