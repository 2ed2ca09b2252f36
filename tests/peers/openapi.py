"""Outsiders at the OpenAPI document. `openapi.py validate URL` lets a validator read it as the server answers it;
`openapi.py client URL TOKEN` generates a client from it, lets it talk to the server, and prints what it parsed as JSON."""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

address, document = sys.argv[2], f"{sys.argv[2]}/openapi.json"
if sys.argv[1] == "validate":
    from openapi_spec_validator import OpenAPIV31SpecValidator, validate

    validate(json.load(urllib.request.urlopen(document)), cls=OpenAPIV31SpecValidator)
    sys.exit()

folder = tempfile.TemporaryDirectory()
generated, config = pathlib.Path(folder.name, "client"), pathlib.Path(folder.name, "config.yml")
config.write_text("post_hooks: []\n")
program = pathlib.Path(sys.executable).with_name("openapi-python-client")
line = [program, "generate", "--url", document, "--output-path", generated, "--meta", "none", "--config", config]
# It cannot send NDJSON, and says so: it sends a batch as a list.
subprocess.run(line, check=True, stdout=sys.stderr)
sys.path.insert(0, folder.name)

from client import AuthenticatedClient, models
from client.api.campaigns import change_campaign, get_campaign, get_campaigns, get_report
from client.api.messages import find_messages, get_message, post_batch, post_message

client = AuthenticatedClient(base_url=address, token=sys.argv[3], raise_on_unexpected_status=True)
stranger = AuthenticatedClient(base_url=address, token="wrong", raise_on_unexpected_status=True)
message = models.NewMessage(phone="+447400123456", text="Hello", campaign="peers")
templated = models.NewMessage(
    phone="+447400123457",
    template="Hi {{ name }}",
    params=models.NewMessageParamsType0.from_dict({"name": "Ann"}),
    campaign="peers",
    dedupe_key="order-7",
)
invalid = models.NewMessage(phone="12", text="Hello")
change = models.CampaignChange(rate="5/s", priority=3, paused=True)

parsed = {}


def note(name, response):
    """Keeps the status, the type and the values of what the client parsed."""
    value = response.parsed
    values = value.to_dict() if hasattr(value, "to_dict") else value
    parsed[name] = {"status": response.status_code, "kind": type(value).__name__, "value": values}
    return value


posted = note("posted", post_message.sync_detailed(client=client, body=message, idempotency_key="k-1"))
note("repeated", post_message.sync_detailed(client=client, body=message, idempotency_key="k-1"))
note("batch", post_batch.sync_detailed(client=client, body=[templated, templated, invalid]))
note("message", get_message.sync_detailed(posted.id, client=client))
note("found", find_messages.sync_detailed(client=client, phone="+447400123456"))
note("changed", change_campaign.sync_detailed("peers", client=client, body=change))
note("campaign", get_campaign.sync_detailed("peers", client=client))
note("campaigns", get_campaigns.sync_detailed(client=client))
note("invalid", post_message.sync_detailed(client=client, body=invalid))
note("unauthorized", post_message.sync_detailed(client=stranger, body=message))
note("unknown", get_message.sync_detailed("999999", client=client))
note("report", get_report.sync_detailed("peers", client=client, list_=models.GetReportList.FIGURES))
print(json.dumps(parsed))
