"""Moto's SNS as a server on this machine: prints its port, then for every line it reads how many messages it got and
to how many phones."""

import sys

from moto.server import ThreadedMotoServer
from moto.sns.models import sns_backends

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
_, port = server.get_host_and_port()
print(port, flush=True)
for _ in sys.stdin:
    messages = [
        message
        for regions in sns_backends.values()
        for backend in regions.values()
        for message in backend.sms_messages.values()
    ]
    print(len(messages), len({phone for phone, _ in messages}), flush=True)
server.stop()
