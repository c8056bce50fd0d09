"""Exit 0 if the server in this container says that it is ready; HTTP_PORT names another port than 8000."""

import os
import urllib.request

url = f"http://127.0.0.1:{os.environ.get('HTTP_PORT', '8000')}/v2/health/ready"
urllib.request.urlopen(url, timeout=4).close()
