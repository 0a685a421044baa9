"""A working day with the client that openapi-python-client generates: records, pages, changes, secrets, files and refusals.

CLIENT_URL and CLIENT_KEY say where and as whom. mypy checks this file against the generated types.
"""

import os
import time
from collections.abc import Iterator
from typing import TypeVar

from tenant_control_client import AuthenticatedClient
from tenant_control_client.api.control_plane import (
    create_api_key, create_organization, create_webhook, list_api_keys, list_organizations, list_webhooks,
    replace_api_key, replace_webhook, revoke_api_key, send_deliveries,
)
from tenant_control_client.api.schema import get_openapi_document
from tenant_control_client.api.search_and_reporting import read_asset_inventory, search
from tenant_control_client.api.service_workflows import (
    change_ticket, create_ticket, list_tickets, list_workflows, run_workflow,
)
from tenant_control_client.api.session import get_session
from tenant_control_client.models import (
    ApiKey, ApiKeyInput, ApiKeyInputScopesItem, ApiKeyRotation, ApiKeyRotationSettings, ApiKeyStatus, Delivery, DevicePart,
    DeviceChangePage, GetOpenapiDocumentResponse200, InventoryDevice, InventoryDevicePage, InventorySummary, InventoryView,
    NewKey, NewWebhook, Organization, OrganizationInput, OrganizationPage, Problem, SearchHitPage, SearchType, Session,
    TestAction, Ticket, TicketCommentPage, TicketDetail, TicketInput, TicketPage, TicketPatch, TicketPatchComment,
    TicketPriority, TicketStatus, TicketView, Webhook, WebhookInput, WebhookRotation, WebhookRotationSettings, Workflow,
    WorkflowInput, WorkflowInputAction, WorkflowManualTriggerInput, WorkflowOnManual, WorkflowPage, WorkflowRunDetail,
    WorkflowRunPage, WorkflowRunRequest, WorkflowRunRequestInput, WorkflowStepInput, WorkflowStepInputUses,
    WorkflowStepInputWith, WorkflowView, WorkStatus,
)
from tenant_control_client.types import UNSET, Unset

client = AuthenticatedClient(
    base_url=os.environ["CLIENT_URL"], token=os.environ["CLIENT_KEY"], raise_on_unexpected_status=True
)

# What happens after the answer to a request happens within this time.
WAIT_SECONDS = 30


T = TypeVar("T")


def expect(kind: type[T], answer: object) -> T:
    """The answer, if it is of this kind: a generated client returns a problem as a value."""
    assert isinstance(answer, kind), f"{kind.__name__} expected: {answer}"
    return answer


def all_tickets(status: list[TicketStatus], tag: str, limit: int) -> Iterator[Ticket]:
    """Page by page to the end."""
    cursor: str | Unset = UNSET
    while True:
        page = expect(
            TicketPage, list_tickets.sync(client=client, status=status, tag=[tag], limit=limit, cursor=cursor)
        )
        assert len(page.data) <= limit
        yield from page.data
        if page.next_cursor is None:
            assert not page.has_more
            return
        cursor = page.next_cursor


def organizations_and_tickets() -> Ticket:
    organization = expect(
        Organization, create_organization.sync(client=client, body=OrganizationInput(name="Globex Inc.", tags=["gold"]))
    )
    found = expect(OrganizationPage, list_organizations.sync(client=client, slug=organization.slug, archived=False))
    assert [one.id for one in found.data] == [organization.id]

    made = []
    for number in range(7):
        body = TicketInput(
            subject=f"Printer {number} on fire", priority=TicketPriority.HIGH, organization_id=organization.id,
            tags=["printer"], external_id=f"python-{number}",
        )
        made.append(expect(Ticket, create_ticket.sync(client=client, body=body, idempotency_key=f"python-{number}")))
    repeated = create_ticket.sync_detailed(client=client, body=body, idempotency_key="python-6")
    assert expect(Ticket, repeated.parsed).id == made[6].id and repeated.headers["Idempotency-Replayed"] == "true"

    ticket = made[3]
    detail = expect(TicketDetail, list_tickets.sync(client=client, id=ticket.id))
    assert detail.subject == ticket.subject and detail.comments == [] and detail.created_at.tzinfo is not None

    changed = list_tickets.sync_detailed(client=client, id=ticket.id)
    patch = TicketPatch(status=TicketStatus.IN_PROGRESS, comment=TicketPatchComment(body="On it.", public=False))
    patched = expect(
        Ticket, change_ticket.sync(client=client, id=ticket.id, body=patch, if_match=changed.headers["ETag"])
    )
    assert patched.status is TicketStatus.IN_PROGRESS and patched.comment_count == 1 and patched.version == 2
    assert patched.external_id == ticket.external_id, "what a patch leaves out stays"
    comments = expect(
        TicketCommentPage, list_tickets.sync(client=client, id=ticket.id, view=TicketView.COMMENTS, limit=5)
    )
    assert [comment.body for comment in comments.data] == ["On it."]

    # A list is one parameter given several times.
    both = list(all_tickets([TicketStatus.NEW, TicketStatus.IN_PROGRESS], "printer", 2))
    assert [one.number for one in both] == [one.number for one in reversed(made)]
    assert len(list(all_tickets([TicketStatus.NEW], "printer", 200))) == 6
    return patched


def keys() -> None:
    scopes = [ApiKeyInputScopesItem("tickets:read"), ApiKeyInputScopesItem("search:read")]
    made = expect(NewKey, create_api_key.sync(client=client, body=ApiKeyInput(name="Report", scopes=scopes)))
    mine = AuthenticatedClient(base_url=os.environ["CLIENT_URL"], token=made.key)
    session = expect(Session, get_session.sync(client=mine))
    assert session.actor.id == made.id

    rotation = ApiKeyRotation(rotate=ApiKeyRotationSettings(overlap_hours=0))
    rotated = expect(NewKey, replace_api_key.sync(client=client, id=made.id, body=rotation))
    assert rotated.key != made.key and rotated.expires_at == made.expires_at
    assert expect(Problem, get_session.sync(client=mine)).code == "unauthenticated"

    renamed = replace_api_key.sync(client=client, id=made.id, body=ApiKeyInput(name="Reports", scopes=scopes))
    assert expect(ApiKey, renamed).expires_at == made.expires_at, "what a generated client leaves out stays"
    assert revoke_api_key.sync_detailed(client=client, id=made.id).status_code == 204
    read = expect(ApiKey, list_api_keys.sync(client=client, id=made.id))
    assert read.status is ApiKeyStatus.REVOKED


def webhooks() -> None:
    body = WebhookInput(name="Chat", url="https://hooks.invalid/in", events=["ticket.*"])
    made = expect(NewWebhook, create_webhook.sync(client=client, body=body))
    assert made.secret.startswith("whsec_")
    rotation = WebhookRotation(rotate_secret=WebhookRotationSettings(overlap_hours=1))
    rotated = expect(NewWebhook, replace_webhook.sync(client=client, id=made.id, body=rotation))
    assert rotated.secret != made.secret
    assert expect(Webhook, list_webhooks.sync(client=client, id=made.id, limit=50)).name == "Chat"
    sent = send_deliveries.sync(client=client, body=TestAction(action="test", webhook_id=made.id))
    assert expect(Delivery, sent).event_type == "webhook.test"


def workflows() -> None:
    step = WorkflowStepInput(
        id="make", uses=WorkflowStepInputUses.TICKET_CREATE,
        with_=WorkflowStepInputWith.from_dict({"subject": "Restart ${{ input.host }}"}),
    )
    definition = WorkflowInput(
        action=WorkflowInputAction.CREATE, name="Restart", on=WorkflowOnManual(manual=WorkflowManualTriggerInput()),
        steps=[step],
    )
    workflow = expect(Workflow, run_workflow.sync(client=client, body=definition))
    assert [one.id for one in expect(WorkflowPage, list_workflows.sync(client=client)).data] == [workflow.id]
    request = WorkflowRunRequest(
        workflow_id=workflow.id, input_=WorkflowRunRequestInput.from_dict({"host": "web-1"})
    )
    run = expect(WorkflowRunDetail, run_workflow.sync(client=client, body=request))
    until = time.monotonic() + WAIT_SECONDS
    while run.status not in (WorkStatus.SUCCEEDED, WorkStatus.FAILED):
        assert time.monotonic() < until, run
        time.sleep(0.02)
        run = expect(WorkflowRunDetail, list_workflows.sync(client=client, run_id=run.id))
    assert run.status is WorkStatus.SUCCEEDED and [done.id for done in run.steps] == ["make"]
    runs = list_workflows.sync(client=client, view=WorkflowView.RUNS, status=[WorkStatus.SUCCEEDED, WorkStatus.FAILED])
    assert [one.id for one in expect(WorkflowRunPage, runs).data] == [run.id]


def inventory() -> None:
    page = expect(InventoryDevicePage, read_asset_inventory.sync(client=client, include=[DevicePart.DISKS, DevicePart.NICS]))
    assert sorted(str(device.hostname) for device in page.data) == ["web-1", "web-2", "web-3"]
    one = page.data[0]
    assert one.disks == [] and isinstance(one.software, Unset), "only what was asked for"
    assert expect(InventoryDevice, read_asset_inventory.sync(client=client, id=one.id)).hostname == one.hostname
    history = read_asset_inventory.sync(client=client, id=one.id, view=InventoryView.HISTORY)
    assert isinstance(history, (DeviceChangePage, InventoryDevicePage)), history
    summary = expect(InventorySummary, read_asset_inventory.sync(client=client, view=InventoryView.SUMMARY))
    assert sum(row.count for row in summary.platform) == 3


def finding(ticket: Ticket) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while True:
        found = search.sync(client=client, q=f'"{ticket.subject}"', types=[SearchType.TICKET, SearchType.DEVICE])
        page = expect(SearchHitPage, found)
        if page.data:
            break
        assert time.monotonic() < until, "a write is found within a second"
        time.sleep(0.02)
    assert page.data[0].id == ticket.id and page.counts.ticket == 1


def refusals(ticket: Ticket) -> None:
    unknown = expect(Problem, list_tickets.sync(client=client, id="tkt_nothing"))
    assert (unknown.status, unknown.code) == (404, "not_found")

    invalid = expect(Problem, create_ticket.sync(client=client, body=TicketInput(subject="", tags=["a", ""])))
    assert (invalid.status, invalid.code) == (422, "invalid_fields") and not isinstance(invalid.errors, Unset)
    assert [field.pointer for field in invalid.errors] == ["/subject", "/tags/1"]

    taken = create_ticket.sync(client=client, body=TicketInput(subject="Again", external_id=ticket.external_id))
    assert (expect(Problem, taken).status, expect(Problem, taken).code) == (409, "conflict")

    closed = change_ticket.sync(client=client, id=ticket.id, body=TicketPatch(status=TicketStatus.CLOSED))
    assert expect(Problem, closed).code == "invalid_transition"
    stale = change_ticket.sync(client=client, id=ticket.id, body=TicketPatch(team="Print"), if_match='"1"')
    assert (expect(Problem, stale).status, expect(Problem, stale).code) == (412, "version_mismatch")


document = expect(GetOpenapiDocumentResponse200, get_openapi_document.sync(client=client))
assert document.openapi.startswith("3.1")
changed_ticket = organizations_and_tickets()
keys()
webhooks()
workflows()
inventory()
refusals(changed_ticket)
finding(changed_ticket)
print("Python: every call of the round is typed and answered")
