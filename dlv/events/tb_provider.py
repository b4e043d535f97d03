"""The former place of `dlv.events.server.tb_provider`, which the documentation named."""

from dlv.events.server.tb_provider import data_provider as data_provider
