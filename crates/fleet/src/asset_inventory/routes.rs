//! `/api/rmm/reports/asset-inventory`

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use feature_kit::IdOrNone;
use feature_kit::{Q_CHARS_MAX, parse_stored_q};
use kernel::auth::Scope;
use kernel::base::{Code, Error, Label, Result};
use kernel::http::{
    Access, Api, FromParams, LIST_MAX, ListPage, Ok200, PageRequest, Params, QueryParam, QueryString, RatePolicy,
    ResponseDocs, RowBatch, RowEncoding, Rules, Streamed, Streamer, Versioned,
};
use kernel::operations;
use kernel::rules;
use people::organizations::OrganizationId;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response as Described, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::find::{DeviceOrder, DeviceSortKey, Filter, SoftwareFilter};
use super::page::DeviceQuery;
use super::shown::{FieldSelection, InventoryDevice};
use super::{InventorySummary, InventoryView, ListFormat, columns, store, summary};
use crate::devices::{DeviceChange, DeviceId};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(read_asset_inventory))
        .add_schema::<ListPage<super::shown::InventoryDevice>>()
        .add_schema::<super::shown::InventoryDevice>()
        .add_schema::<ListPage<DeviceChange>>()
        .add_schema::<super::InventorySummary>()
        .add_schema::<super::DevicePart>()
        .add_schema::<super::ListFormat>()
        .add_schema::<super::InventoryView>()
        .add_schema::<crate::devices::UpdatedDevice>()
}

const PATH: &str = "/api/rmm/reports/asset-inventory";

/// Devices of one step of a file: enough to keep the cost per device low, few enough not to block others.
const FILE_ROWS: usize = 500;

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::InventoryRead]).or_export();
}

pub struct ListQuery {
    id: Option<DeviceId>,
    view: Option<InventoryView>,
    format: ListFormat,
    selection: FieldSelection,
    filter: Filter,
    order: DeviceOrder,
    page: PageRequest,
    /// The organization of a summary.
    organization: Option<IdOrNone<OrganizationId>>,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let is_list = params.has_param("view");
        let beside: &[&str] = if is_list { &["view", "limit", "cursor"] } else { &["fields", "include"] };
        let one = "One device, with its history. Only with `fields` and `include`, or with `view=history`, `limit` and `cursor`.";
        let view = "`summary`: how many devices there are of each kind, of all or with `organization_id` of one organization. \
                    `history`: with `id`, every change of the device, newest first.";
        let format =
            "`csv` and `ndjson` are the whole list as a file, without `limit` and `cursor`; counted as exports.";
        let id = params.take_optional_id_beside(one, beside)?;
        let view: Option<InventoryView> = params.take_enum(QueryParam::new("view", view))?;
        refuse_beside_view(params, view, id.is_some())?;
        let is_paged = params.has_param("limit") || params.has_param("cursor");
        let format = params.take_enum(QueryParam::new("format", format))?.unwrap_or(ListFormat::Json);
        if format != ListFormat::Json && is_paged {
            return Err(Error::new(
                Code::InvalidParameter,
                "A file is the whole list: limit and cursor are for format=json.",
            ));
        }
        let choice = take_selection(params)?;
        let filter = take_filter(params)?;
        let order = take_order(params, &filter)?;
        let of = filter.organization_id.as_ref().and_then(|any| any.first().copied());
        if view == Some(InventoryView::Summary) && filter.organization_id.as_ref().is_some_and(|any| any.len() > 1) {
            return Err(Error::new(Code::InvalidParameter, "A summary is of all devices or of one organization."));
        }
        Ok(ListQuery {
            id,
            view,
            format,
            selection: choice,
            filter,
            order,
            organization: of,
            page: PageRequest::take_page(params)?,
        })
    }
}

/// Refuses parameters that a view does not support, so that no filter is ignored.
fn refuse_beside_view(params: &Params, view: Option<InventoryView>, has_id: bool) -> Result<()> {
    let refused = |detail: &str| Err(Error::new(Code::InvalidParameter, detail));
    match view {
        Some(InventoryView::History) if !has_id => {
            refused("The query parameter view=history needs the id of a device.")
        }
        Some(InventoryView::Summary) if has_id => {
            refused("The query parameter view=summary is of all devices, and takes no id.")
        }
        Some(InventoryView::Summary) => {
            let others = [
                "type",
                "platform",
                "status",
                "health",
                "tag",
                "software",
                "hostname",
                "serial_number",
                "os",
                "last_seen_before",
                "needs_reboot",
                "warranty",
                "possible_duplicate",
                "sort",
                "q",
                "updated_since",
                "fields",
                "include",
                "format",
                "limit",
                "cursor",
            ];
            match others.into_iter().find(|name| params.has_param(name)) {
                Some(other) => refused(&format!("The query parameter {other} cannot be combined with view=summary.")),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn take_selection(params: &mut Params) -> Result<FieldSelection> {
    let fields = "Only these fields and `id`, as a comma list; what `include` names comes as well.";
    let include = "Lists of each device that come only when they are named here, as a comma list.";
    let fields = QueryParam::new("fields", fields).with_items_max(LIST_MAX);
    let fields = params.take_list(fields, "the name of a field of a device", columns::find_field)?;
    let include = params.take_enums(QueryParam::new("include", include).with_items_max(LIST_MAX))?;
    let fields = fields.map(|mut fields| {
        fields.retain(|field| *field != "id");
        fields.insert(0, "id");
        Arc::new(fields)
    });
    Ok(FieldSelection { fields, include: include.unwrap_or_default() })
}

fn take_filter(params: &mut Params) -> Result<Filter> {
    let any = |name, about| QueryParam::new(name, about).with_items_max(LIST_MAX);
    // The rules of a tag; the comma list is already split.
    let text = |text: &str| Label::parse(text).ok().map(Label::into_string);
    let organizations = any("organization_id", "Of any of these organizations, as a comma list; `none` is of none.");
    let tags = any("tag", "With any of these tags, as a comma list.");
    let software =
        any("software", "With any of these installed, as a comma list: `name`, or `name@version`. Names ignore case.");
    let q = "At most 10 words, each the beginning of a word of the hostname, display name, serial number, model, primary \
             address or\nhardware address, the last in any notation and the others however they are written.";
    let updated = "Changed at this moment or later, in the order of the changes, with deleted devices as tombstones. A reader \
                   that\ngoes on by cursor, or from the last `updated_at` it has seen, misses nothing. What is deleted is shown whatever\n\
                   `software` it had.";
    let hostnames = any("hostname", "With any of these hostnames, as a comma list; whole, ignoring case.");
    let serials = any("serial_number", "With any of these serial numbers, as a comma list; whole, ignoring case.");
    let systems = any("os", "Whose system's name begins with any of these, as a comma list, such as `windows 11`.");
    let seen = "Last seen before this moment. Devices that have never reported are left out.";
    let flag = |name, about| QueryParam::new(name, about).with_pattern("^(true|false)$");
    let reboot = flag("needs_reboot", "`true`: those that need a reboot; `false`: the others.");
    let duplicate = flag("possible_duplicate", "`true`: those with a `possible_duplicate_of`; `false`: the others.");
    Ok(Filter {
        organization_id: params.take_list(organizations, "the id of an organization or none", IdOrNone::parse)?,
        r#type: params.take_enums(any("type", "Any of these, as a comma list."))?,
        platform: params.take_enums(any("platform", "Any of these, as a comma list."))?,
        status: params.take_enums(any("status", "Any of these, as a comma list."))?,
        health: params.take_enums(any("health", "Any of these, as a comma list."))?,
        tag: params.take_list(tags, "a tag", text)?,
        software: params.take_list(software, "name or name@version", SoftwareFilter::parse)?,
        hostname: params.take_list(hostnames, "a hostname", text)?,
        serial_number: params.take_list(serials, "a serial number", text)?,
        os: params.take_list(systems, "the beginning of a name", text)?,
        last_seen_before: params.take_time(QueryParam::new("last_seen_before", seen))?,
        needs_reboot: params.take_parsed(reboot, parse_flag)?,
        warranty: params.take_enums(any("warranty", "Any of these, as a comma list."))?,
        possible_duplicate: params.take_parsed(duplicate, parse_flag)?,
        words: params
            .take_parsed(QueryParam::new("q", q).with_length(1, Q_CHARS_MAX), parse_stored_q)?
            .unwrap_or_default(),
        updated_since: params.take_time(QueryParam::new("updated_since", updated))?,
    })
}

fn take_order(params: &mut Params, filter: &Filter) -> Result<DeviceOrder> {
    let sort = "`hostname`, `last_seen_at`, `updated_at` or `created_at`; with `-` before it descending. Devices without the \
                value\ncome last. Newest first when omitted; not with `updated_since`, which has an order of its own.";
    let sort = QueryParam::new("sort", sort).with_pattern("^-?(hostname|last_seen_at|updated_at|created_at)$");
    let order = params.take_parsed(sort, DeviceOrder::parse)?;
    if order.is_some() && filter.updated_since.is_some() {
        let detail =
            "The query parameter sort cannot be combined with updated_since, which lists changes in their order.";
        return Err(Error::new(Code::InvalidParameter, detail));
    }
    Ok(order.unwrap_or(DeviceOrder::NEWEST))
}

fn parse_flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "must be true or false".to_owned())
}

/// Files with `fields=hostname`, as NDJSON and as CSV.
const EXAMPLES: [&str; 2] = [
    "{\"id\":\"dev_01jd8z6v2mfkpb7h3q9xw5t4rd\",\"hostname\":\"web01\"}\n",
    "id,hostname\r\ndev_01jd8z6v2mfkpb7h3q9xw5t4rd,web01\r\n",
];

/// The responses of GET.
pub enum InventoryAnswer {
    One(Box<InventoryDevice>),
    Devices(ListPage<InventoryDevice>),
    History(ListPage<DeviceChange>),
    Summary(Box<InventorySummary>),
    File(Streamed),
}

impl IntoResponse for InventoryAnswer {
    fn into_response(self) -> Response {
        match self {
            InventoryAnswer::One(device) => Versioned(*device).into_response(),
            InventoryAnswer::Devices(page) => page.into_response(),
            InventoryAnswer::History(page) => page.into_response(),
            InventoryAnswer::Summary(summary) => Ok200(*summary).into_response(),
            InventoryAnswer::File(file) => file.into_response(),
        }
    }
}

impl IntoResponses for InventoryAnswer {
    fn responses() -> ResponseDocs {
        let mut all = Streamed::responses();
        let names = [
            <ListPage<InventoryDevice>>::name(),
            InventoryDevice::name(),
            <ListPage<DeviceChange>>::name(),
            InventorySummary::name(),
        ];
        // anyOf and not oneOf: an empty page matches every page schema.
        let schema: RefOr<Schema> =
            names.into_iter().fold(AnyOfBuilder::new(), |any_of, name| any_of.item(Ref::from_schema_name(name))).into();
        let example = <ListPage<InventoryDevice>>::schema();
        if let Some(RefOr::T(Described { description, content, .. })) = all.get_mut("200") {
            description.clear();
            description.push_str(
                "A page of the list; with `id` the one device; with `view` its history, or a summary; with `format` the \
                            whole list as a file, which ends without its last chunk, or with a reset of its stream, if it breaks off.",
            );
            let example = match example {
                RefOr::T(Schema::Object(object)) => object.examples.first().cloned(),
                _ => None,
            };
            for (media_type, file) in content.iter_mut() {
                if let RefOr::T(file) = file {
                    file.example = Some(EXAMPLES[usize::from(media_type.starts_with("text/csv"))].into());
                }
            }
            content.insert(
                "application/json".to_owned(),
                ContentBuilder::new().schema(Some(schema)).example(example).build().into(),
            );
        }
        all
    }
}

/// Read the asset inventory
///
/// Devices, newest first, in pages or as a file. All filters apply together; a page may hold fewer devices than `limit`, and
/// even none, when matches are rare: go by `has_more`. With `updated_since` it is a list of changes, to keep a copy up to
/// date.
#[utoipa::path(
    get, path = PATH, tag = "Search and reporting", operation_id = "read_asset_inventory", params(QueryString<ListQuery>)
)]
pub async fn read_asset_inventory(
    caller: Access<Reading>,
    streamer: Streamer,
    query: QueryString<ListQuery>,
) -> Result<InventoryAnswer> {
    let db = caller.db();
    let ListQuery { id, view, format, selection, filter, order, page, organization } = query.parse()?;
    match (id, view) {
        (Some(id), Some(_)) => {
            let after = page.cursor_key(&caller, PATH)?;
            let (changes, next) = store::list_history(&db, id, after, page.limit).await?;
            return page.build_cut_page(&caller, PATH, changes, next).map(InventoryAnswer::History);
        }
        (Some(id), None) => {
            return store::get_device(&db, id, &selection).await.map(|device| InventoryAnswer::One(Box::new(device)));
        }
        (None, Some(_)) => {
            return summary::store::load_summary(&db, organization)
                .await
                .map(|found| InventoryAnswer::Summary(Box::new(found)));
        }
        (None, None) => {}
    }
    let device_query = DeviceQuery { filter, order, selection };
    let encoding = match format {
        ListFormat::Json => {
            let after: Option<DeviceSortKey> = page.cursor_key(&caller, PATH)?;
            let found =
                device_query.read_page(&db, after, page.limit, device_query.estimate_first_rows(page.limit)).await?;
            return page.build_cut_page(&caller, PATH, found.rows, found.next).map(InventoryAnswer::Devices);
        }
        ListFormat::Csv => columns::csv_encoding(&device_query.selection),
        ListFormat::Ndjson => RowEncoding::Ndjson,
    };
    let device_query = Arc::new(device_query);
    let read = move |position: Option<(DeviceSortKey, usize)>| {
        let (db, device_query) = (db.clone(), device_query.clone());
        async move {
            let (after, likely) = position.unzip();
            let likely = likely.unwrap_or_else(|| device_query.estimate_first_rows(FILE_ROWS));
            let found = device_query.read_page(&db, after, FILE_ROWS, likely).await?;
            let likely = device_query.estimate_next_rows(&found, FILE_ROWS);
            Ok(RowBatch { rows: found.rows, next: found.next.map(|key| (key, likely)) })
        }
    };
    let file = streamer.stream_rows(caller, encoding, read).await?;
    Ok(InventoryAnswer::File(file.with_file_name("devices")))
}
