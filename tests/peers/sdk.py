"""The vendors' own SDKs, to compare with. `sdk.py send NAME` lets one send a message to a server on this machine, and
prints what it sent as JSON; `sdk.py sign NAME` reads a request as JSON and prints the signature that the SDK gives it."""

import datetime
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

PHONE, OTHER = "+8613812345678", "+8613812345679"
TEXT = "Hello Anna, 你好 & \"bye\" ~*'()!\n"
REFERENCE = "0f7a-ref-1"


class Handler(BaseHTTPRequestHandler):
    answer = b"{}"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.seen.append(
            {
                "target": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "body": body.decode(),
            }
        )
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_):
        pass


def aliyun(host, batch):
    from alibabacloud_dysmsapi20170525 import models
    from alibabacloud_dysmsapi20170525.client import Client
    from alibabacloud_tea_openapi.models import Config

    client = Client(
        Config(access_key_id="LTAIid", access_key_secret="secret", endpoint=host, protocol="http")
    )
    if batch:
        client.send_batch_sms(
            models.SendBatchSmsRequest(
                phone_number_json=json.dumps([PHONE[3:], OTHER[3:]], separators=(",", ":")),
                sign_name_json=json.dumps(["阿里云"] * 2, ensure_ascii=False, separators=(",", ":")),
                template_code="SMS_1",
                template_param_json='[{"code":"4711"},{"code":"4712 ~*"}]',
                out_id="batch-" + REFERENCE,
            )
        )
    else:
        client.send_sms(
            models.SendSmsRequest(
                phone_numbers=PHONE[3:],
                sign_name="阿里云",
                template_code="SMS_1",
                template_param='{"code":"4711"}',
                out_id=REFERENCE,
            )
        )


def tencent(host):
    from tencentcloud.common import credential
    from tencentcloud.common.profile.client_profile import ClientProfile
    from tencentcloud.common.profile.http_profile import HttpProfile
    from tencentcloud.sms.v20210111 import models, sms_client

    profile = ClientProfile(httpProfile=HttpProfile(protocol="http", endpoint=host))
    client = sms_client.SmsClient(credential.Credential("AKIDid", "secret"), "ap-guangzhou", profile)
    request = models.SendSmsRequest()
    request.from_json_string(
        json.dumps(
            {
                "PhoneNumberSet": [PHONE],
                "SmsSdkAppId": "1400",
                "TemplateId": "1110",
                "TemplateParamSet": ["4711"],
                "SessionContext": REFERENCE,
                "SignName": "腾讯云",
            }
        )
    )
    client.SendSms(request)


def amazon(host, service):
    import boto3
    from botocore.config import Config

    client = boto3.client(
        service,
        region_name="eu-west-1",
        endpoint_url=f"http://{host}/",
        aws_access_key_id="AKIAIDIDIDIDIDID",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}),
    )
    if service == "sns":
        client.publish(PhoneNumber=PHONE, Message=TEXT)
    else:
        client.send_text_message(
            DestinationPhoneNumber=PHONE, MessageBody=TEXT, Context={"reference": REFERENCE}
        )


def twilio(host):
    from twilio.http.http_client import TwilioHttpClient
    from twilio.rest import Client

    class Here(TwilioHttpClient):
        def request(self, method, uri, *arguments, **named):
            uri = uri.replace("https://api.twilio.com", f"http://{host}")
            return super().request(method, uri, *arguments, **named)

    client = Client("AC" + "0" * 32, "token", http_client=Here())
    client.messages.create(to=PHONE, from_="+15005550006", body=TEXT)


def telnyx(host):
    from telnyx import Telnyx

    client = Telnyx(api_key="KEYkey", base_url=f"http://{host}/v2", max_retries=0)
    client.messages.send(
        to=PHONE, from_="SHOP", text=TEXT, type="SMS", extra_headers={"idempotency-key": REFERENCE}
    )


def infobip(host):
    from infobip_api_client import ApiClient, Configuration, models
    from infobip_api_client.api.sms_api import SmsApi

    def message(phone):
        return models.SmsMessage(
            sender="SHOP",
            destinations=[models.SmsDestination(to=phone[1:], messageId=REFERENCE)],
            content=models.SmsMessageContent(models.SmsTextContent(text=TEXT)),
        )

    options = models.SmsMessageRequestOptions(includeSmsCountInResponse=True)
    both = [message(PHONE), message(OTHER)]
    SmsApi(ApiClient(Configuration(host=f"http://{host}", api_key="key"))).send_sms_messages(
        models.SmsRequest(messages=both, options=options)
    )


def plivo(host):
    from plivo import RestClient
    from plivo.rest import client

    client.PLIVO_API, client.PLIVO_API_BASE_URI = f"http://{host}", f"http://{host}/v1/Account"
    RestClient("MAXXXXXXXXXXXXXXXXXX", "token").messages.create(
        src="+14155550100", dst=PHONE, text=TEXT
    )


def sinch(host):
    from sinch import SinchClient

    client = SinchClient(service_plan_id="plan", sms_api_token="token", sms_region="eu")
    client.configuration.sms_origin_with_service_plan_id = f"http://{host}"
    client.sms.batches.send_sms(
        to=[PHONE[1:], OTHER[1:]], from_="SHOP", body=TEXT, client_reference="batch-" + REFERENCE
    )


def clicksend(host):
    import clicksend

    def message(phone):
        return clicksend.SendSmsRequestMessagesInner(
            to=phone, var_from="SHOP", body=TEXT, source="smsq", custom_string=REFERENCE
        )

    settings = clicksend.Configuration(
        host=f"http://{host}", username="user", password="key", ignore_operation_servers=True
    )
    clicksend.SmsApi(clicksend.ApiClient(settings)).send_sms(
        content_type="application/json",
        send_sms_request=clicksend.SendSmsRequest(messages=[message(PHONE), message(OTHER)]),
    )


def vonage(host):
    from vonage_http_client import Auth, HttpClient
    from vonage_sms import Sms, SmsMessage

    client = HttpClient(Auth(api_key="abcd1234", api_secret="secret"))
    client._rest_host = host
    request = client._session.request
    client._session.request = lambda **named: request(
        **{**named, "url": named["url"].replace("https:", "http:")}
    )
    Sms(client).send(
        SmsMessage(to=PHONE[1:], from_="SHOP", text=TEXT, type="unicode", client_ref=REFERENCE)
    )


CALLS = {
    "aliyun": lambda host: aliyun(host, False),
    "aliyun-batch": lambda host: aliyun(host, True),
    "tencent": tencent,
    "aws-sns": lambda host: amazon(host, "sns"),
    "aws-sms": lambda host: amazon(host, "pinpoint-sms-voice-v2"),
    "twilio": twilio,
    "clicksend": clicksend,
    "infobip": infobip,
    "plivo": plivo,
    "sinch": sinch,
    "telnyx": telnyx,
    "vonage": vonage,
}


def sign_aliyun(request):
    from urllib.parse import parse_qsl

    from alibabacloud_tea_openapi.utils import Utils
    from Tea.request import TeaRequest

    signed = TeaRequest()
    signed.method, signed.pathname = "POST", "/"
    signed.query = dict(parse_qsl(request["query"]))
    signed.headers = {"host": request["host"], **request["headers"]}
    payload = Utils.hex_encode(Utils.hash(request["body"].encode(), "ACS3-HMAC-SHA256"))
    assert payload == request["headers"]["x-acs-content-sha256"]
    return Utils.get_authorization(signed, "ACS3-HMAC-SHA256", payload, "LTAIid", "secret")


def sign_tencent(request):
    from tencentcloud.common import credential
    from tencentcloud.common.http.request import RequestInternal
    from tencentcloud.sms.v20210111 import sms_client

    client = sms_client.SmsClient(credential.Credential("AKIDid", "secret"), "ap-guangzhou")
    names = {"content-type": "Content-Type", "x-tc-timestamp": "X-TC-Timestamp"}
    header = {names[name]: value for name, value in request["headers"].items() if name in names}
    header["Host"] = request["host"]
    signed = RequestInternal(request["host"], "POST", "/", header, request["body"])
    moment = datetime.datetime.fromtimestamp(int(header["X-TC-Timestamp"]), datetime.timezone.utc)
    date = moment.strftime("%Y-%m-%d")
    signature = client._get_tc3_signature({}, signed, date, "sms", "secret")
    return (
        f"TC3-HMAC-SHA256 Credential=AKIDid/{date}/sms/tc3_request, "
        f"SignedHeaders=content-type;host, Signature={signature}"
    )


def sign_amazon(request, service):
    from unittest.mock import patch

    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    sent = request["headers"]
    moment = datetime.datetime.strptime(sent["x-amz-date"], "%Y%m%dT%H%M%SZ")
    headers = {name: value for name, value in sent.items() if name != "x-amz-date"}
    url = f"https://{request['host']}/"
    signed = AWSRequest("POST", url, headers=headers, data=request["body"].encode())
    auth = SigV4Auth(Credentials("AKIAIDIDIDIDIDID", "secret"), service, "eu-west-1")
    with patch("botocore.auth.get_current_datetime", return_value=moment):
        auth.add_auth(signed)
    return signed.headers["Authorization"]


SIGNERS = {
    "aliyun": sign_aliyun,
    "aliyun-batch": sign_aliyun,
    "tencent": sign_tencent,
    "aws-sns": lambda request: sign_amazon(request, "sns"),
    "aws-sms": lambda request: sign_amazon(request, "sms-voice"),
}


def sign(name):
    request = json.load(sys.stdin)
    request["headers"].pop("authorization")
    print(json.dumps({"authorization": SIGNERS[name](request)}))


def send(name):
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.seen = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{server.server_port}"
    fault = None
    try:
        CALLS[name](host)
    except Exception as error:  # The answer is none of the vendor's; what was sent is what counts.
        fault = repr(error)
    if not server.seen:
        sys.exit(f"{name} sent nothing: {fault}")
    print(json.dumps({"host": host, **server.seen[0]}))


{"send": send, "sign": sign}[sys.argv[1]](sys.argv[2])
