"""The vendors' own SDKs, to compare with. `sdk.py send NAME` lets one send a message to a server on this machine, and
prints what it sent as JSON; `sdk.py sign NAME` reads a request as JSON and prints the signature that the SDK gives it;
`sdk.py post NAME` prints requests with a receipt that the SDK accepts as signed by the vendor, now and with a secret."""

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
        to=[PHONE[1:], OTHER[1:]],
        from_="SHOP",
        body=TEXT,
        client_reference="batch-" + REFERENCE,
        delivery_report="per_recipient",
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


ADDRESS = "https://sms.example.net/receipts/peer/t0ken"
SECRET = "hunter2" * 10
STATUS = {"MessageSid": "SM1", "MessageStatus": "delivered", "To": "+44 7700 900000 &=ä你"}


def posted(body, headers, url=ADDRESS, method="POST", secret=SECRET):
    return {"method": method, "url": url, "headers": headers, "body": body, "secret": secret}


def form(pairs):
    from urllib.parse import urlencode

    return urlencode(pairs), {"content-type": "application/x-www-form-urlencoded"}


def post_twilio(now):
    from twilio.request_validator import RequestValidator

    validator = RequestValidator(SECRET)
    body, headers = form(STATUS)
    for url in [ADDRESS, ADDRESS + "?reference=a%20b", ADDRESS.replace(".net", ".net:443")]:
        for algorithm in ["HMAC_SHA1", "HMAC_SHA256"]:
            signature = validator.compute_signature(url, STATUS, algorithm)
            assert validator.validate(url, STATUS, signature, algorithm)
            settings = {"x-twilio-webhooks-signature-settings": f"key=k,algorithm={algorithm}"}
            yield posted(body, {**headers, **settings, "x-twilio-signature": signature}, url)
    url = ADDRESS + "?MessageSid=SM1&MessageStatus=delivered"
    yield posted("", {"x-twilio-signature": validator.compute_signature(url, {})}, url, "GET")


def post_plivo(now):
    from plivo.utils import validate_v3_signature
    from plivo.utils.signature_v3 import construct_get_url, construct_post_url, get_signature_v3

    pairs = {"MessageUUID": "u-1", "Status": "delivered", "To": "447700900000", "a": "x y&=ä"}
    body, headers = form(pairs)
    for method, url in [
        ("POST", ADDRESS),
        ("POST", ADDRESS + "?b=2&a=1"),
        ("GET", ADDRESS + "?MessageUUID=u-1&Status=delivered&a=x%20y"),
    ]:
        params = pairs if method == "POST" else {}
        make = construct_post_url if method == "POST" else construct_get_url
        signature = get_signature_v3(SECRET.encode(), make(url, dict(params)).decode(), "n0nce").decode()
        assert validate_v3_signature(method, url, "n0nce", SECRET, signature, dict(params))
        signed = {"x-plivo-signature-v3": signature, "x-plivo-signature-v3-nonce": "n0nce"}
        if method == "POST":
            yield posted(body, {**headers, **signed}, url)
        else:
            yield posted("", signed, url, "GET")


def post_vonage(now):
    from vonage_http_client import Auth

    pairs = {"messageId": "0A", "status": "delivered", "client-ref": "a&b=c ä", "timestamp": str(now)}
    for method in ["md5", "sha1", "sha256", "sha512"]:
        auth = Auth(api_key="abcd1234", signature_secret=SECRET, signature_method=method)
        signed = {**pairs, "sig": auth.sign_params(dict(pairs))}
        assert auth.check_signature(dict(signed))
        body, headers = form(signed)
        yield posted(body, headers)
        yield posted("", {}, f"{ADDRESS}?{body}", "GET")
        yield posted(json.dumps(signed), {"content-type": "application/json"})


def hashed(text):
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def post_vonage_messages(now):
    import jwt
    from vonage_jwt.verify_jwt import verify_signature

    body = json.dumps({"message_uuid": "a", "status": "delivered", "to": "447700900000"})
    claims = {"iat": now, "jti": "j", "iss": "Vonage", "payload_hash": hashed(body), "api_key": "k"}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    assert verify_signature(token, SECRET)
    yield posted(body, {"authorization": f"Bearer {token}"})


def post_messagebird(now):
    import jwt
    from messagebird.request_validator import RequestValidator

    claims = {"iss": "MessageBird", "nbf": now - 1, "exp": now + 30, "jti": "j"}
    body, headers = form({"id": "1", "reference": "r", "status": "delivered"})
    for algorithm in ["HS256", "HS384", "HS512"]:
        url = f"{ADDRESS}?{body}"
        token = jwt.encode({**claims, "url_hash": hashed(url)}, SECRET, algorithm=algorithm)
        RequestValidator(SECRET).validate_signature(token, url, b"")
        yield posted("", {"messagebird-signature-jwt": token}, url, "GET")
        both = {**claims, "url_hash": hashed(ADDRESS), "payload_hash": hashed(body)}
        token = jwt.encode(both, SECRET, algorithm=algorithm)
        RequestValidator(SECRET).validate_signature(token, ADDRESS, body.encode())
        yield posted(body, {**headers, "messagebird-signature-jwt": token})


def post_telnyx(now):
    import base64

    from nacl.signing import SigningKey
    from telnyx.lib.webhook_verification import verify_webhook_signature

    key = SigningKey.generate()
    public = base64.b64encode(bytes(key.verify_key)).decode()
    status = [{"phone_number": "+447700900000", "status": "delivered"}]
    body = json.dumps({"data": {"event_type": "message.finalized", "payload": {"id": "1", "to": status}}})
    signature = base64.b64encode(key.sign(f"{now}|{body}".encode()).signature).decode()
    headers = {"telnyx-signature-ed25519": signature, "telnyx-timestamp": str(now)}
    verify_webhook_signature(body, headers, public)
    yield posted(body, headers, secret=public)


POSTERS = {
    "twilio": post_twilio,
    "plivo": post_plivo,
    "vonage": post_vonage,
    "vonage-messages": post_vonage_messages,
    "messagebird": post_messagebird,
    "telnyx": post_telnyx,
}


def post(name):
    now = int(datetime.datetime.now().timestamp())
    print(json.dumps({"now": now, "requests": list(POSTERS[name](now))}))


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


{"send": send, "sign": sign, "post": post}[sys.argv[1]](sys.argv[2])
